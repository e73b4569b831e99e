"""Where process groups lie on the machine."""

from __future__ import annotations

from builders import batch, job

from predictor.lowering.groups import (
    Group, context_group, expert_gradient_group, expert_group, gradient_group, pipeline_group,
    replica_group, tensor_group,
)


def shape(group: Group) -> tuple[int, int, int, int, int]:
    """Return (size, stride, ranks per domain, domains, concurrent) of the only row."""
    return tuple(int(getattr(group, name)[0]) for name in (  # type: ignore[return-value]
        "size", "stride", "ranks_per_domain", "domains", "concurrent"))


def test_tensor_parallel_of_eight_fills_a_node() -> None:
    assert shape(tensor_group(batch(job(num_nodes=4), tp=8))) == (8, 1, 8, 1, 1)


def test_tensor_parallel_of_sixteen_leaves_the_node() -> None:
    assert shape(tensor_group(batch(job(num_nodes=4), tp=16))) == (16, 1, 8, 2, 1)


def test_data_parallel_beside_tensor_parallel_shares_the_adapters_with_its_siblings() -> None:
    assert shape(gradient_group(batch(job(num_nodes=4), tp=8))) == (4, 8, 1, 4, 8)
    assert shape(gradient_group(batch(job(num_nodes=4), tp=2))) == (16, 2, 4, 4, 2)


def test_context_parallel_lies_between_tensor_and_data() -> None:
    assert shape(context_group(batch(job(num_nodes=4), tp=4, cp=4))) == (4, 4, 2, 2, 4)


def test_pipeline_neighbours_are_a_whole_stage_apart() -> None:
    assert shape(pipeline_group(batch(job(num_nodes=4), tp=4, pp=4)))[:2] == (4, 8)


def test_experts_have_a_grid_of_their_own() -> None:
    plan = batch(job(num_nodes=4), tp=4, ep=8, etp=1)
    assert shape(expert_group(plan)) == (8, 1, 8, 1, 1)
    assert shape(expert_gradient_group(plan)) == (4, 8, 1, 4, 8)


def test_hybrid_sharding_leaves_replicas() -> None:
    plan = batch(job(num_nodes=4), zero_stage=3, dp_shard=8)
    assert shape(replica_group(plan)) == (4, 8, 1, 4, 8)
