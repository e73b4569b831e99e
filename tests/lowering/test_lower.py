"""The kernels of a layer, against counts and shapes worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from builders import batch, gpt, job
from hypothesis import given
from hypothesis import strategies as st

from predictor.lowering.lower import Lowered, lower
from predictor.lowering.parts import Part
from predictor.lowering.tables import CollectiveKind, Dtype, KernelKind, Phase, Stream


def uses(lowered: Lowered, kind: KernelKind, part: Part, phase: Phase) -> list[tuple[float, ...]]:
    """Return (m, n, k, count) of the kernels of one kind in one part and phase."""
    use, table = lowered.kernel_use, lowered.kernels
    chosen = (use.part == part) & (use.phase == phase) & (table.kind[use.unique] == kind)
    return sorted((float(table.m[u]), float(table.n[u]), float(table.k[u]), float(c))
                  for u, c in zip(use.unique[chosen], use.count[chosen], strict=True))


def calls(
    lowered: Lowered, part: Part, phase: Phase, stream: Stream
) -> list[tuple[int, float, float]]:
    """Return (kind, bytes, count) of the collectives of one part, phase and stream."""
    use, table = lowered.collective_use, lowered.collectives
    chosen = (use.part == part) & (use.phase == phase) & (use.stream == stream)
    return sorted((int(table.kind[u]), float(table.bytes[u]), float(c))
                  for u, c in zip(use.unique[chosen], use.count[chosen], strict=True))


def test_attention_has_two_linear_layers_of_three_gemms_each() -> None:
    lowered = lower(batch(tp=2, micro_batch_size=1))
    # tokens 2048; qkv: 3 x 4096 / 2 outputs; projection: 4096 / 2 inputs.
    assert uses(lowered, KernelKind.GEMM, Part.ATTENTION, Phase.FORWARD) == [
        (2048, 4096, 2048, 1), (2048, 6144, 4096, 1)]
    assert uses(lowered, KernelKind.GEMM, Part.ATTENTION, Phase.BACKWARD) == [
        (2048, 2048, 4096, 1), (2048, 4096, 6144, 1)]
    assert uses(lowered, KernelKind.GEMM, Part.ATTENTION, Phase.WEIGHT) == [
        (4096, 2048, 2048, 1), (6144, 4096, 2048, 1)]


def test_gated_mlp_doubles_the_up_projection() -> None:
    model = gpt(gated_mlp=True, ffn_hidden_size=11008)
    lowered = lower(batch(job(model), micro_batch_size=2))
    assert uses(lowered, KernelKind.GEMM, Part.MLP, Phase.FORWARD) == [
        (4096, 4096, 11008, 1), (4096, 22016, 4096, 1)]


def test_grouped_query_attention_narrows_keys_and_values() -> None:
    model = gpt(num_query_groups=8)
    lowered = lower(batch(job(model)))
    forward = uses(lowered, KernelKind.GEMM, Part.ATTENTION, Phase.FORWARD)
    assert (2048, (32 + 2 * 8) * 128, 4096, 1) in forward


def test_flash_attention_counts_the_causal_half() -> None:
    lowered = lower(batch())
    table = lowered.kernels
    fused = table.take(table.kind == KernelKind.ATTENTION)
    forward = fused.flops[fused.phase == Phase.FORWARD].item()
    # 4 x s^2 x h, halved: two products of 2 FLOP, 32 heads of 128.
    assert forward == pytest.approx(4 * 2048**2 * 4096 / 2)
    assert fused.flops[fused.phase == Phase.BACKWARD].item() == pytest.approx(2.5 * forward)


def test_eager_attention_computes_the_whole_square_and_a_softmax() -> None:
    lowered = lower(batch(job(attention_backend="fused-softmax")))
    forward = uses(lowered, KernelKind.BATCHED_GEMM, Part.ATTENTION, Phase.FORWARD)
    assert forward == [(2048, 128, 2048, 1), (2048, 2048, 128, 1)]
    assert len(uses(lowered, KernelKind.SOFTMAX, Part.ATTENTION, Phase.BACKWARD)) == 1


def test_tensor_parallel_layer_has_two_all_reduces_each_way() -> None:
    lowered = lower(batch(tp=4))
    size = 2.0 * 2048 * 4096
    for part in (Part.ATTENTION, Part.MLP):
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            assert calls(lowered, part, phase, Stream.TP) == [
                (CollectiveKind.ALL_REDUCE, size, 1.0)]


def test_sequence_parallel_layer_gathers_and_scatters_and_gathers_again_for_wgrad() -> None:
    lowered = lower(batch(tp=4, sequence_parallel=True))
    size = 2.0 * 2048 * 4096
    pair = [(CollectiveKind.ALL_GATHER, size, 1.0), (CollectiveKind.REDUCE_SCATTER, size, 1.0)]
    assert calls(lowered, Part.MLP, Phase.FORWARD, Stream.TP) == pair
    assert calls(lowered, Part.MLP, Phase.BACKWARD, Stream.TP) == pair
    assert calls(lowered, Part.MLP, Phase.BACKWARD, Stream.TP_HIDDEN) == [
        (CollectiveKind.ALL_GATHER, size, 1.0)]


def test_parallel_residual_blocks_reduce_once() -> None:
    lowered = lower(batch(job(gpt(parallel_residual=True)), tp=4))
    assert calls(lowered, Part.ATTENTION, Phase.FORWARD, Stream.TP) == []
    assert len(calls(lowered, Part.MLP, Phase.FORWARD, Stream.TP)) == 1


def test_full_recompute_repeats_the_forward_collectives() -> None:
    lowered = lower(batch(tp=4, recompute="full"))
    assert calls(lowered, Part.MLP, Phase.RECOMPUTE, Stream.TP) == calls(
        lowered, Part.MLP, Phase.FORWARD, Stream.TP)


def test_selective_recompute_repeats_the_attention_core_only() -> None:
    lowered = lower(batch(job(attention_backend="fused-softmax"), recompute="selective"))
    assert uses(lowered, KernelKind.GEMM, Part.ATTENTION, Phase.RECOMPUTE) == []
    assert len(uses(lowered, KernelKind.BATCHED_GEMM, Part.ATTENTION, Phase.RECOMPUTE)) == 2


def test_fp8_runs_linear_layers_in_fp8_and_attention_in_bf16() -> None:
    table = lower(batch(precision="fp8")).kernels
    assert set(table.dtype[table.kind == KernelKind.ATTENTION]) == {Dtype.BF16}
    gemms = table.take(table.kind == KernelKind.GEMM)
    assert (gemms.dtype == Dtype.FP8).sum() == 12
    assert (gemms.dtype == Dtype.BF16).sum() == 3  # the logits


def test_mixture_of_experts_dispatches_and_combines_each_way() -> None:
    model = gpt(num_experts=8, moe_router_topk=2, moe_ffn_hidden_size=14336, gated_mlp=True)
    lowered = lower(batch(job(model), ep=8))
    size = 2.0 * 2048 * 2 * 4096
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert calls(lowered, Part.MOE, phase, Stream.EP) == [
            (CollectiveKind.ALL_TO_ALL, size, 2.0)]
    grouped = uses(lowered, KernelKind.GROUPED_GEMM, Part.MOE, Phase.FORWARD)
    assert grouped == [(4096, 4096, 14336, 1), (4096, 28672, 4096, 1)]


def test_load_imbalance_gives_the_busiest_rank_more_tokens() -> None:
    model = gpt(num_experts=8, moe_router_topk=2)
    even = lower(batch(job(model), ep=8)).kernels.flops.sum()
    skewed = lower(batch(job(model, moe_load_imbalance=1.5), ep=8)).kernels.flops.sum()
    assert skewed > even


def test_ring_context_parallelism_passes_keys_and_values_behind_attention() -> None:
    lowered = lower(batch(cp=4))
    block = 2.0 * (2048 / 4) * 32 * (128 + 128)
    assert calls(lowered, Part.ATTENTION, Phase.FORWARD, Stream.CP_HIDDEN) == [
        (CollectiveKind.SEND_RECV, block, 3.0)]


def test_equal_layers_are_lowered_once_for_many_strategies() -> None:
    from predictor.lowering.batch import Batch
    from predictor.spec.resolve import resolve
    from predictor.spec.strategy import Strategy

    pairs = [resolve(job(num_nodes=4), Strategy(tp=4, pp=pp, vpp=vpp, zero_stage=zero))[:2]
             for pp in (1, 2, 4) for vpp in (1, 2) for zero in (0, 1)]
    lowered = lower(Batch.from_pairs([j for j, _ in pairs], [s for _, s in pairs]))
    # Only dp differs between the pipeline degrees, and a layer cannot see zero_stage or vpp.
    assert lowered.num_layer_rows <= 3


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.booleans())
def test_splitting_over_ranks_keeps_the_matrix_work(tp: int, micro: int, parallel: bool) -> None:
    one = lower(batch(micro_batch_size=micro))
    split = lower(batch(tp=tp, micro_batch_size=micro, sequence_parallel=parallel))

    def work(lowered: Lowered) -> float:
        flops = np.where(lowered.kernels.kind == KernelKind.GEMM, lowered.kernels.flops, 0.0)
        summed = lowered.sum_kernels(flops)[0]
        return float(summed[[Part.ATTENTION, Part.MLP]].sum())

    assert work(split) * tp == pytest.approx(work(one))
