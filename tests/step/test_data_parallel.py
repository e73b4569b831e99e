"""Bytes that gradients and parameters travel in, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from builders import batch, gpt, job

from predictor.lowering.parts import build_stages
from predictor.lowering.tables import CollectiveKind
from predictor.spec.job import TrainingJob
from predictor.step.data_parallel import (
    build_ranks, calls_per_pass, collectives_of, optimizer_table,
)

# GPT with 4 layers of 12 h^2 + 13 h parameters, h = 4096; embedding and positions.
LAYER = 12 * 4096**2 + 13 * 4096
ENDS = 51200 * 4096 + 2048 * 4096 + 2 * 4096
NAMES = ("dense", "expert", "replicas", "expert replicas", "gather", "expert gather", "tied")


def sizes(work: TrainingJob | None = None, **strategy: object) -> dict[str, np.ndarray]:
    """Return the bytes of each collective, one entry per pipeline rank."""
    plan = batch(work or job(), **strategy)
    ranks = build_ranks(plan, build_stages(plan))
    tables = collectives_of(plan, ranks)
    return {name: table.bytes * calls_per_pass(plan, ranks)
            for name, table in zip(NAMES, tables, strict=True)}


def test_plain_data_parallel_all_reduces_fp32_gradients() -> None:
    plan = batch()
    ranks = build_ranks(plan, build_stages(plan))
    table = collectives_of(plan, ranks)[0]
    assert table.kind.tolist() == [CollectiveKind.ALL_REDUCE]
    assert table.bytes[0] == pytest.approx(4 * (4 * LAYER + ENDS))


def test_distributed_optimizer_scatters_gradients_and_gathers_parameters() -> None:
    found = sizes(zero_stage=1)
    assert found["dense"][0] == pytest.approx(4 * (4 * LAYER + ENDS))
    assert found["gather"][0] == pytest.approx(2 * (4 * LAYER + ENDS))


def test_fp16_gradients_are_half_as_large() -> None:
    assert sizes(precision="fp16")["dense"][0] == pytest.approx(sizes()["dense"][0] / 2)


def test_tied_embeddings_are_summed_between_the_first_and_the_last_stage() -> None:
    tied = sizes(pp=4)["tied"]
    assert tied.tolist() == pytest.approx([4 * 51200 * 4096, 0, 0, 4 * 51200 * 4096])
    assert sizes(pp=1)["tied"].sum() == 0
    assert sizes(job(gpt(tied_embeddings=False)), pp=4)["tied"].sum() == 0


def test_adapters_reduce_little_but_fsdp_gathers_the_frozen_weights() -> None:
    work = job(workload="lora", lora_rank=16, framework="torchtitan")
    lora = sizes(work, zero_stage=3)
    full = sizes(job(framework="torchtitan"), zero_stage=3)
    assert lora["dense"][0] < 0.01 * full["dense"][0]
    assert lora["gather"][0] == pytest.approx(full["gather"][0])


def test_hybrid_sharding_sums_shards_over_replicas() -> None:
    found = sizes(job(num_nodes=2, framework="torchtitan"), zero_stage=3, dp_shard=8)
    assert found["replicas"][0] == pytest.approx(4 * (4 * LAYER + ENDS) / 8)


def test_hybrid_sharding_of_experts_leaves_copies_of_each_expert() -> None:
    model = gpt(num_experts=8, moe_router_topk=2)
    found = sizes(job(model, num_nodes=4, framework="torchtitan"), zero_stage=3, ep=8, dp_shard=8)
    # One expert per rank of a node and layer: nothing to shard, four copies of 8 h^2 each.
    assert found["expert replicas"][0] == pytest.approx(4 * 4 * 8 * 4096**2)
    assert found["expert"][0] == 0


def test_sharding_divides_the_optimizer_step() -> None:
    def owned(**strategy: object) -> float:
        plan = batch(**strategy)
        return float(optimizer_table(plan, build_ranks(plan, build_stages(plan))).m[0])

    assert owned(zero_stage=1) == pytest.approx(owned() / 8)
