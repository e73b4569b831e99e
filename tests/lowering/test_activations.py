"""Bytes kept for backward, against Korthikanti et al. (arXiv 2205.05198, section 4)."""

from __future__ import annotations

import pytest
from builders import batch, gpt, job
from hypothesis import given
from hypothesis import strategies as st

from predictor.lowering.activations import part_activations
from predictor.lowering.parts import Part

S, H, A = 2048, 4096, 32
"""Sequence, hidden size and heads of builders.gpt: the model that the paper's formulas assume."""
TENSOR = pytest.mark.parametrize("tp", [1, 2, 4, 8])


def layer_bytes(work=None, **strategy):
    """Return what one layer keeps, in units of s b h."""
    work = work or job(attention_backend="fused-softmax", seq_len=S)
    one = batch(work, **({"precision": "fp16"} | strategy))
    saved = part_activations(one).saved[0]
    size = strategy.get("micro_batch_size", 1)
    return (saved[Part.ATTENTION] + saved[Part.MLP]) / (S * size * H)


@pytest.mark.parametrize("size", [1, 2, 8])
def test_a_whole_layer_keeps_34_and_its_scores(size):
    """Equation 1: s b h (34 + 5 a s / h)."""
    assert layer_bytes(micro_batch_size=size) == pytest.approx(34 + 5 * A * S / H)


@TENSOR
def test_tensor_parallelism_divides_all_but_norms_and_residuals(tp):
    """Equation 2: s b h (10 + 24 / t + 5 a s / (h t))."""
    assert layer_bytes(tp=tp) == pytest.approx(10 + 24 / tp + 5 * A * S / (H * tp))


@TENSOR
def test_sequence_parallelism_divides_everything(tp):
    """Equation 4: s b h / t (34 + 5 a s / h)."""
    found = layer_bytes(tp=tp, sequence_parallel=tp > 1)
    assert found == pytest.approx((34 + 5 * A * S / H) / tp)


@TENSOR
def test_selective_recompute_drops_the_scores(tp):
    """Equation 6: 34 s b h / t."""
    found = layer_bytes(tp=tp, sequence_parallel=tp > 1, recompute="selective")
    assert found == pytest.approx(34 / tp)


def test_flash_attention_keeps_a_statistic_per_head_and_query():
    """Four bytes of log-sum-exp (arXiv 2205.14135, algorithm 1)."""
    assert layer_bytes(job(seq_len=S)) == pytest.approx(34 + 4 * A / H)


def test_a_gated_grouped_layer_without_dropout_keeps_the_same_list_of_tensors():
    """Norm inputs and outputs 4 x 2; q 2, k and v 2 x 2 / 4; context 2; up projections 2 x 2 f / h,
    activation 2 f / h."""
    model = gpt(num_query_groups=8, gated_mlp=True, ffn_hidden_size=14336, add_bias_linear=False,
                position_embedding="rope", normalization="rmsnorm")
    expected = 8 + 2 + 4 / 4 + 2 + 6 * 14336 / H + 4 * A / H
    assert layer_bytes(job(model, seq_len=S), precision="bf16") == pytest.approx(expected)


def test_wide_types_keep_twice_as_much_but_for_masks_and_statistics():
    work = job(seq_len=S)
    fixed = 2 + 4 * A / H
    assert layer_bytes(work, precision="fp32") - fixed == pytest.approx(
        2 * (layer_bytes(work, precision="bf16") - fixed))


def test_fp8_keeps_less_than_16_bit():
    work = job(seq_len=S)
    assert layer_bytes(work, precision="fp8") < layer_bytes(work, precision="bf16")


@pytest.mark.parametrize("modules", [("core_attn",), ("mlp",), ("layernorm",),
                                     ("core_attn", "mlp", "layernorm")])
def test_every_recomputed_module_saves_something(modules):
    chosen = layer_bytes(recompute="selective", recompute_modules=modules)
    assert chosen < layer_bytes()


@given(ep=st.sampled_from([1, 2, 4, 8]), imbalance=st.floats(1, 4))
def test_experts_keep_what_is_routed_to_them(ep, imbalance):
    """top-k copies of every token, wherever the experts are: only imbalance adds to it."""
    model = gpt(num_experts=8, moe_router_topk=2, moe_ffn_hidden_size=2048)
    even = part_activations(batch(job(model), ep=ep)).saved[0, Part.MOE]
    alone = part_activations(batch(job(model))).saved[0, Part.MOE]
    uneven = part_activations(
        batch(job(model, moe_load_imbalance=imbalance), ep=ep)).saved[0, Part.MOE]
    assert even == alone
    assert uneven >= even


def test_a_frozen_matrix_keeps_no_input():
    full = part_activations(batch(job()))
    lora = part_activations(batch(job(workload="lora", lora_rank=16)))
    assert lora.saved[0, Part.MLP] < full.saved[0, Part.MLP]


def test_context_parallelism_divides_the_tokens():
    one = part_activations(batch(job(seq_len=8192)))
    four = part_activations(batch(job(seq_len=8192), cp=4))
    assert four.saved[0, Part.MLP] == pytest.approx(one.saved[0, Part.MLP] / 4)
    assert four.saved[0, Part.ATTENTION] == pytest.approx(one.saved[0, Part.ATTENTION] / 4)


def test_without_dropout_only_the_softmax_of_the_scores_is_kept():
    """Two bytes of 5 a s^2 b; eager models keep the softmax in fp32 as well."""
    plain = gpt(position_embedding="rope")
    flash, fused, eager = (
        layer_bytes(job(plain, attention_backend=word, seq_len=S), precision="bf16")
        for word in ("flash", "fused-softmax", "eager"))
    statistic = 4 * A / H
    assert fused - flash == pytest.approx(2 * A * S / H - statistic)
    assert eager - flash == pytest.approx(6 * A * S / H - statistic)


def test_torchtitan_keeps_every_second_product():
    """q, v, w1 and w2 of a Llama layer, attention's result and the layer's input (torchtitan
    distributed/activation_checkpoint.py)."""
    model = gpt(num_query_groups=8, gated_mlp=True, ffn_hidden_size=14336, add_bias_linear=False,
                position_embedding="rope", normalization="rmsnorm")
    kept = layer_bytes(job(model, framework="torchtitan", seq_len=S), precision="bf16",
                       recompute="selective")
    in_q_v_context_w1_w2 = 2 + 2 + 2 / 4 + 2 + 2 * 14336 / H + 2
    assert kept == pytest.approx(in_q_v_context_w1_w2 + 4 * A / H)


@pytest.mark.parametrize(("framework", "tp", "size"), [
    ("nemo", 1, 4), ("megatron", 1, 6), ("megatron-deepspeed", 1, 10), ("torchtitan", 1, 12),
    ("torchtitan", 2, 16)])
def test_bytes_per_logit_by_how_the_loss_is_computed(framework, tp, size):
    """The gradient of the output layer's weight and the gathered input are small beside it."""
    vocabulary = 2**20
    work = job(gpt(vocab_size=vocabulary), framework=framework, seq_len=65536)
    found = part_activations(batch(work, tp=tp)).working[0, Part.HEAD]
    assert found * tp / (65536 * vocabulary) == pytest.approx(size, rel=0.05)


def test_selective_recompute_brings_back_what_it_dropped():
    parts = part_activations(batch(job(attention_backend="fused-softmax", seq_len=S),
                                   precision="fp16", recompute="selective"))
    assert parts.repeated[0, Part.ATTENTION] == pytest.approx(5 * A * S * S)
    assert parts.repeated[0, Part.MLP] == 0
