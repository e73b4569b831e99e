"""Memory of every pipeline rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import A100, batch, cluster, gpt, job
from hypothesis import given
from hypothesis import strategies as st

from predictor.lowering.parts import build_stages
from predictor.memory import CATEGORIES, MemoryTable, memory_of
from predictor.spec.job import TrainingJob

LAYERS = 16
STRATEGIES = st.fixed_dictionaries({
    "tp": st.sampled_from([1, 2, 4]), "pp": st.sampled_from([1, 2, 4]),
    "micro_batch_size": st.sampled_from([1, 2, 4]), "zero_stage": st.integers(0, 3),
    "recompute": st.sampled_from(["none", "selective", "full"]),
    "precision": st.sampled_from(["fp16", "bf16", "fp32"])})
BACKENDS = st.sampled_from(["flash", "fused-softmax"])
MODELS = st.sampled_from([
    gpt(num_layers=LAYERS),
    gpt(num_layers=LAYERS, num_query_groups=8, gated_mlp=True, position_embedding="rope"),
    gpt(num_layers=LAYERS, num_experts=8, moe_router_topk=2, moe_ffn_hidden_size=2048)])


def memory(work: TrainingJob | None = None, **strategy) -> MemoryTable:
    one = batch(work or job(gpt(num_layers=LAYERS), num_nodes=2), **strategy)
    return memory_of(one, build_stages(one))


def peak(model, backend, strategy) -> float:
    return memory(job(model, num_nodes=2, attention_backend=backend), **strategy).peak_bytes[0]


@given(model=MODELS, backend=BACKENDS, strategy=STRATEGIES)
def test_the_categories_sum_to_what_is_allocated(model, backend, strategy):
    found = memory(job(model, num_nodes=2, attention_backend=backend), **strategy)
    assert set(found.categories) == set(CATEGORIES)
    assert all(np.all(column >= 0) for column in found.categories.values())
    assert np.allclose(sum(found.categories.values()), found.allocated_bytes)
    assert found.peak_bytes[0] == found.allocated_bytes.max()
    assert found.last_rank_bytes[0] == found.allocated_bytes[-1]
    assert len(found.row) == strategy["pp"]


@given(model=MODELS, backend=BACKENDS, strategy=STRATEGIES)
def test_allocated_fits_into_reserved_and_reserved_into_the_device(model, backend, strategy):
    found = memory(job(model, num_nodes=2, attention_backend=backend), **strategy)
    assert found.peak_bytes < found.reserved_bytes < found.device_bytes


@given(model=MODELS, backend=BACKENDS, strategy=STRATEGIES)
def test_a_bigger_micro_batch_never_needs_less(model, backend, strategy):
    bigger = strategy | {"micro_batch_size": 2 * strategy["micro_batch_size"]}
    assert peak(model, backend, bigger) >= peak(model, backend, strategy)


@given(model=MODELS, backend=BACKENDS, strategy=STRATEGIES)
def test_a_higher_zero_stage_never_needs_more(model, backend, strategy):
    """Up to stage 2; stage 3 gathers layers, which pays once a rank holds many."""
    peaks = [peak(model, backend, strategy | {"zero_stage": stage}) for stage in (0, 1, 2)]
    assert np.all(np.diff(peaks) <= 0)


def test_stage_3_needs_less_than_stage_2_for_many_layers():
    assert memory(zero_stage=3).peak_bytes < memory(zero_stage=2).peak_bytes


@given(model=MODELS, backend=BACKENDS, strategy=STRATEGIES)
def test_more_recompute_never_needs_more(model, backend, strategy):
    none, selective, full = (peak(model, backend, strategy | {"recompute": word})
                             for word in ("none", "selective", "full"))
    assert full <= none * (1 + 1e-12)
    assert selective <= none


@given(model=MODELS, backend=BACKENDS, strategy=STRATEGIES)
def test_sequence_parallelism_never_needs_more(model, backend, strategy):
    off, on = (peak(model, backend, strategy | {"sequence_parallel": switch})
               for switch in (False, True))
    assert on <= off


@given(layers=st.integers(1, LAYERS))
def test_recomputing_more_layers_needs_less(layers):
    some, one_more = (memory(recompute="full", recompute_num_layers=count).peak_bytes
                      for count in (layers, layers + 1))
    assert one_more <= some


def test_the_first_and_the_last_stage_hold_the_vocabulary():
    states = memory(pp=4).categories["parameters_bytes"]
    assert states[0] > states[1] == states[2]
    assert states[3] > states[2]


def test_earlier_stages_hold_more_micro_batches():
    activations = memory(pp=4).categories["activations_bytes"]
    assert np.all(np.diff(activations) < 0)
    assert activations[1] == pytest.approx(1.5 * activations[2])  # three against two


def test_the_first_stage_is_the_peak_of_a_deep_pipeline():
    found = memory(pp=4, micro_batch_size=4)
    assert found.allocated_bytes.argmax() == 0


def test_chunks_hold_more_than_1f1b_and_less_than_gpipe():
    plain, chunks, gpipe = (memory(pp=4, **extra).peak_bytes
                            for extra in ({}, {"vpp": 2}, {"schedule": "gpipe"}))
    assert plain < chunks < gpipe


def test_offloaded_activations_are_gone():
    half = memory(activation_offload=0.5).categories["activations_bytes"]
    assert half == pytest.approx(0.5 * memory().categories["activations_bytes"])


@pytest.mark.parametrize(("share", "verdict"), [
    (0.5, "does-not-fit"), (0.99, "tight"), (1.0, "tight"), (1.01, "tight"), (2.0, "fits")])
def test_the_verdict_compares_with_the_capacity(share, verdict):
    needed = memory().device_bytes[0]
    gpu = replace(A100, usable_memory_bytes=share * needed)
    work = replace(job(gpt(num_layers=LAYERS)), cluster=cluster(2, gpu))
    found = memory(work)
    assert found.verdict.tolist() == [verdict]
    assert found.capacity_bytes == pytest.approx([share * needed])


def test_rows_of_one_batch_do_not_mix():
    one = batch(job(gpt(num_layers=LAYERS), num_nodes=2), pp=4)
    two = one.take(np.array([0, 0]))
    together, alone = memory_of(two, build_stages(two)), memory_of(one, build_stages(one))
    assert together.allocated_bytes.tolist() == 2 * alone.allocated_bytes.tolist()
    assert together.row.tolist() == [0] * 4 + [1] * 4


def test_the_count_of_micro_batches_in_flight_can_be_given():
    one = batch(job(gpt(num_layers=LAYERS), num_nodes=2), pp=4)
    stages = build_stages(one)
    single = memory_of(one, stages, lambda _, stages: np.ones(len(stages.row)))
    usual = memory_of(one, stages)
    ratio = usual.categories["activations_bytes"] / single.categories["activations_bytes"]
    assert ratio.tolist() == pytest.approx([4, 3, 2, 1])


def test_headroom_is_what_the_fullest_gpu_has_left():
    found = memory(pp=4)
    assert found.headroom_bytes[0] == A100.usable_memory_bytes - found.device_per_rank_bytes.max()


def test_states_leave_no_holes():
    """Only what comes and goes is fragmented."""
    one, two = memory(optimizer_offload=0.0), memory(optimizer_offload=1.0)
    assert one.reserved_bytes - one.peak_bytes == pytest.approx(two.reserved_bytes - two.peak_bytes)
