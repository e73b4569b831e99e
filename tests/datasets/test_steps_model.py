"""The model that a row's cells describe."""

from __future__ import annotations

import pytest

from predictor.spec.errors import InputError


def test_gpt_and_llama_differ_where_no_column_says_so(read):
    gpt = read()[0].model
    assert (gpt.normalization, gpt.position_embedding, gpt.add_bias_linear) == (
        "layernorm", "learned", True)
    assert (gpt.gated_mlp, gpt.tied_embeddings, gpt.max_position_embeddings) == (False, True, 2048)
    llama = read(arch="llama")[0].model
    assert (llama.normalization, llama.position_embedding, llama.add_bias_linear) == (
        "rmsnorm", "rope", False)
    assert (llama.gated_mlp, llama.tied_embeddings) == (True, False)


def test_bert_looks_both_ways(read):
    assert not read(arch="bert", num_layers=24.0)[0].model.causal


def test_columns_win_over_the_catalogue(read):
    model, assumed = (lambda job, _, said: (job.model, said))(*read(
        model_name="llama3-70b(L=12)", arch="llama", num_layers=12.0, hidden=8192.0,
        num_heads=64.0, num_kv_heads=16.0, ffn_hidden=28672.0, vocab=128256.0))
    assert (model.num_layers, model.num_query_groups) == (12, 16)
    assert assumed["model"]["value"] == "llama-3-70b"


def test_structure_without_a_column_is_the_named_models(read):
    size = {"num_layers": 44.0, "hidden": 6144.0, "num_heads": 64.0, "num_kv_heads": 64.0,
            "ffn_hidden": 24576.0, "vocab": 50257.0}
    assert read(model_name="GPT-20B", **size)[0].model.parallel_residual
    other = {**size, "hidden": 8192.0, "ffn_hidden": 32768.0}
    assert not read(model_name="GPT-20B", **other)[0].model.parallel_residual


def test_latent_attention_is_spelled_out(read):
    model = read(arch="moe", num_experts=256.0, topk=8.0, num_heads=128.0, num_kv_heads=128.0,
                 attn_kind="mla(q1536,kv512,nope128,rope64,v128)")[0].model
    assert (model.q_lora_rank, model.kv_lora_rank) == (1536, 512)
    assert (model.qk_nope_head_dim, model.qk_rope_head_dim, model.v_head_dim) == (128, 64, 128)


def test_experts(read):
    model = read(arch="moe", num_experts=64.0, topk=6.0, ffn_hidden=1408.0, dense_layers=1.0,
                 dense_ffn=10944.0, moe_shared_ffn=2816.0)[0].model
    assert (model.num_experts, model.moe_router_topk, model.moe_ffn_hidden_size) == (64, 6, 1408)
    assert (model.ffn_hidden_size, model.moe_num_dense_layers) == (10944, 1)
    assert model.moe_shared_expert_ffn_hidden_size == 2816


def test_only_recipes_that_train_it_have_token_prediction(read):
    cells = {"model_name": "deepseek-v3", "arch": "moe", "num_layers": 61.0, "hidden": 7168.0,
             "num_heads": 128.0, "num_kv_heads": 128.0, "num_experts": 256.0, "topk": 8.0,
             "ffn_hidden": 2048.0}
    assert read(framework="Megatron-Bridge", **cells)[0].model.mtp_num_layers == 1
    assert read(framework="Megatron-LM", **cells)[0].model.mtp_num_layers == 0


def test_a_hybrid_is_the_catalogues_or_refused(read):
    blank = dict.fromkeys(("num_layers", "hidden", "num_heads", "vocab", "ffn_hidden",
                           "num_kv_heads"))
    model = read(model_name="nemotron3-nano-30b-a3b", arch="hybrid-mamba-moe", **blank)[0].model
    assert model.layer_pattern
    with pytest.raises(InputError, match="pattern of layers"):
        read(model_name="somebody's", arch="hybrid-mamba")


def test_a_blank_vocabulary_is_megatrons_tokenizer(read):
    job, _, assumed = read(vocab=None)
    assert job.model.vocab_size == assumed["vocab_size"]["value"] == 50257
    with pytest.raises(InputError, match="the column vocab is blank"):
        read(vocab=None, arch="llama")


def test_everything_missing_is_told_at_once(read):
    with pytest.raises(InputError) as caught:
        read(num_layers=None, hidden=None)
    assert [problem.where for problem in caught.value.problems] == ["num_layers", "hidden"]
