"""Parameters of models, ranks and pipelines."""

from __future__ import annotations

import pytest
from builders import batch, gpt, job
from hypothesis import given
from hypothesis import strategies as st

from predictor.lowering.holdings import RankIndex, held_parameters, trained_share
from predictor.lowering.parameters import part_parameters, total_parameters
from predictor.lowering.parts import Part, build_stages, layer_parts

LLAMA = {"gated_mlp": True, "add_bias_linear": False, "normalization": "rmsnorm",
         "position_embedding": "rope", "tied_embeddings": False}


def total(model):
    return total_parameters(batch(job(model)), layer_parts(model)[None, :])[0]


def held(model=None, num_nodes=2, **strategy):
    one = batch(job(model, num_nodes=num_nodes), **strategy)
    stages = build_stages(one)
    return held_parameters(one, stages, RankIndex.of(one, stages))


@pytest.mark.parametrize(("layers", "hidden", "heads"), [(24, 2304, 24), (96, 12288, 96)])
def test_gpt_follows_the_published_formula(layers, hidden, heads):
    """P = 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)) (arXiv 2104.04473, equation 2); the
    final norm's 2 h are ours."""
    model = gpt(num_layers=layers, hidden_size=hidden, num_attention_heads=heads)
    formula = 12 * layers * hidden**2 * (
        1 + 13 / (12 * hidden) + (51200 + 2048) / (12 * layers * hidden))
    assert total(model) == pytest.approx(formula + 2 * hidden, abs=1)


def test_llama_3_8b_counts_like_its_checkpoint():
    model = gpt(num_layers=32, num_query_groups=8, ffn_hidden_size=14336, vocab_size=128256,
                **LLAMA)
    assert total(model) == 8_030_261_248


def test_mixtral_8x7b_counts_like_its_checkpoint():
    model = gpt(num_layers=32, num_query_groups=8, num_experts=8, moe_router_topk=2,
                moe_ffn_hidden_size=14336, vocab_size=32000, **LLAMA)
    assert total(model) == 46_702_792_704


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallelism_divides_matrices_and_copies_vectors(tp):
    one, split = part_parameters(batch(job())), part_parameters(batch(job(), tp=tp))
    matrices = 4 * 4096**2
    vectors = one.dense[0, Part.ATTENTION] - matrices
    assert split.dense[0, Part.ATTENTION] == pytest.approx(matrices / tp + vectors)


@pytest.mark.parametrize(("ep", "etp", "tp"), [(8, 1, 1), (4, 2, 2), (1, 8, 8)])
def test_the_expert_grid_divides_experts_only(ep, etp, tp):
    model = gpt(num_experts=8, moe_router_topk=2, moe_ffn_hidden_size=2048)
    whole = part_parameters(batch(job(model)))
    split = part_parameters(batch(job(model), ep=ep, etp=etp, tp=tp))
    assert split.expert[0, Part.MOE] == pytest.approx(whole.expert[0, Part.MOE] / 8)
    assert whole.expert[0, Part.MOE] == 8 * 2 * 4096 * 2048


def test_every_tensor_parallel_rank_holds_the_latent_projections():
    model = gpt(q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
                v_head_dim=128, add_bias_linear=False, position_embedding="rope")
    down = 4096 * (1536 + 512 + 64)
    one, two = part_parameters(batch(job(model))), part_parameters(batch(job(model), tp=2))
    shared = 2 * two.dense[0, Part.ATTENTION] - one.dense[0, Part.ATTENTION]
    assert shared == pytest.approx(down, rel=0.002)  # and the norms


def test_a_tied_output_layer_is_copied_to_the_last_rank_only_in_a_pipeline():
    alone, piped = part_parameters(batch(job())), part_parameters(batch(job(), pp=2))
    assert alone.dense[0, Part.HEAD] == 2 * 4096
    assert piped.dense[0, Part.HEAD] == 2 * 4096 + 4096 * 51200


def test_the_vocabulary_is_padded_on_ranks_and_not_in_totals():
    model = gpt(vocab_size=50257)
    padded = part_parameters(batch(job(model), tp=8))
    assert padded.dense[0, Part.EMBEDDING] == 4096 * (51200 / 8 + 2048)
    assert padded.total[0, Part.EMBEDDING] == 4096 * (50257 + 2048)


@given(tp=st.sampled_from([1, 2, 4]), pp=st.sampled_from([1, 2, 4]), vpp=st.sampled_from([1, 2]))
def test_ranks_together_hold_the_model(tp, pp, vpp):
    """Without biases and norms, which tensor-parallel ranks copy, to within a thousandth."""
    model = gpt(num_layers=8, **LLAMA)
    one = held(model, tp=tp, pp=pp, vpp=vpp if pp > 1 else 1)
    assert tp * one.dense.sum() == pytest.approx(total(model), rel=1e-3)


def test_lora_trains_two_ranks_over_the_hidden_size():
    one = batch(job(workload="lora", lora_rank=16))
    assert trained_share(one).tolist() == [2 * 16 / 4096]
    assert trained_share(batch(job())).tolist() == [1]
