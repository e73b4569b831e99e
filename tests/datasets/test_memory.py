"""Reading measured peaks."""

from __future__ import annotations

import pandas as pd
import pytest

from predictor.datasets.memory import as_steps_row, measured, read_memory
from predictor.spec.errors import InputError

ROW = {
    "id": "one", "framework": "Megatron-LM", "gpu": "A100-SXM-80GB", "num_gpus": 16,
    "model": "gpt/a run", "layers": 24, "hidden": 2048, "ffn": 8192, "heads": 16, "kv_heads": 16,
    "vocab": 51200, "seq": 2048, "tp": 2, "pp": 2, "cp": 1, "ep": 1, "vpp": 1,
    "sharding": "distributed optimizer", "mbs": 2, "gbs": 64, "precision": "bf16",
    "recompute": "none", "measured_peak": "40.5", "unit": "GiB", "mem_kind": "allocated",
    "which_rank": "max over ranks"}


def read(**changes):
    return read_memory(pd.DataFrame([ROW | changes]))


def test_a_complete_row_becomes_a_job_and_a_strategy():
    rows = read()
    assert rows.refused == ()
    (job,), (strategy,) = rows.jobs, rows.strategies
    assert (job.model.num_layers, job.model.num_attention_heads, job.seq_len) == (24, 16, 2048)
    assert (strategy.tp, strategy.pp, strategy.micro_batch_size) == (2, 2, 2)
    assert strategy.zero_stage == 1
    assert rows.measured_bytes == (40.5 * 2**30,)
    assert rows.last_rank == (False,)


@pytest.mark.parametrize(("unit", "size"), [
    ("GiB", 2**30), ("GB", 2**30), ("MiB", 2**20), ("MB", 2**20)])
def test_units_are_powers_of_two_whatever_they_are_called(unit, size):
    assert measured(ROW | {"measured_peak": 3, "unit": unit}) == ("allocated", 3 * size)


@pytest.mark.parametrize(("words", "kind"), [
    ("allocated", "allocated"), ("reserved (torch)", "reserved"), ("device", "device"),
    ("torch max allocated", "allocated")])
def test_kinds_are_told_apart(words, kind):
    assert measured(ROW | {"mem_kind": words})[0] == kind


@pytest.mark.parametrize(("changes", "rule"), [
    ({"mem_kind": "estimate"}, "memory-kind"), ({"unit": "pages"}, "memory-figure"),
    ({"measured_peak": ""}, "memory-figure")])
def test_other_figures_are_refused(changes, rule):
    with pytest.raises(InputError) as caught:
        measured(ROW | changes)
    assert [problem.rule for problem in caught.value.problems] == [rule]
    assert read(**changes).jobs == ()
    assert read(**changes).refused[0][0] == 0


def test_the_last_rank_is_marked():
    assert read(which_rank="LAST global rank only").last_rank == (True,)


@pytest.mark.parametrize(("sharding", "stage"), [
    ("none", 0), ("ZeRO-1", 1), ("distributed optimizer (ZeRO-1)", 1), ("ZeRO-2", 2),
    ("FSDP full shard (ZeRO-3)", 3), ("distributed optimizer optim_grads_params", 3)])
def test_sharding_by_any_name(sharding, stage):
    assert as_steps_row(ROW | {"sharding": sharding})["zero_stage"] == stage


@pytest.mark.parametrize(("vocab", "size"), [
    ("GPT2BPETokenizer", 50257), ("BertWordPieceCase", 28996), ("128k", 128_000),
    (32000, 32_000), ("", 50257)])
def test_a_tokenizer_stands_for_its_vocabulary(vocab, size):
    assert as_steps_row(ROW | {"vocab": vocab})["vocab"] == size


def test_experts_are_read_from_words():
    found = as_steps_row(ROW | {"moe": "160 experts top6 moe_ffn1536 shared3072 1 dense layer"})
    assert found["arch"] == "moe"
    assert (found["num_experts"], found["topk"], found["ffn_hidden"]) == (160, 6, 1536)
    assert (found["moe_shared_ffn"], found["dense_layers"], found["dense_ffn"]) == (3072, 1, 8192)


def test_an_open_batch_is_one_micro_batch_per_replica_and_stage():
    assert as_steps_row(ROW | {"gbs": None})["global_batch"] == 2 * 4 * 2


def test_the_outcome_is_not_read():
    with_outcome = ROW | {"oom": "yes", "step_time_s": 3.0, "source": "a paper"}
    assert not {"oom", "step_time_s", "source"} & set(as_steps_row(with_outcome))


def test_an_empty_table_has_no_rows():
    rows = read_memory(pd.DataFrame(columns=list(ROW)))
    assert (rows.jobs, rows.mem_kind, rows.refused) == ((), (), ())


@pytest.mark.parametrize(("seq", "framework", "backend"), [
    (1024, "Megatron-LM CI (mcore)", "fused-softmax"), (4096, "Megatron-LM CI (mcore)", "flash"),
    (1024, "Megatron-LM", "flash")])
def test_short_functional_tests_have_no_flash_attention(seq, framework, backend):
    assert read(seq=seq, framework=framework).jobs[0].attention_backend == backend


def test_a_stated_attention_comes_first():
    rows = read(seq=1024, framework="Megatron-LM CI (mcore)", flash_attention="yes")
    assert rows.jobs[0].attention_backend == "flash"


@pytest.mark.parametrize(("vpp", "chunks"), [("layers/stage 4", 3), ("layers/stage 12", 1), (2, 2)])
def test_layers_per_chunk_become_chunks(vpp, chunks):
    assert as_steps_row(ROW | {"vpp": vpp})["vpp"] == chunks


@pytest.mark.parametrize("cell", [
    "selective [layernorm moe_act]", "selective layernorm,moe_act",
    "selective(modules=layernorm,moe_act)"])
def test_modules_in_any_notation(cell):
    assert as_steps_row(ROW | {"recompute": cell})["recompute"] == \
        "selective(modules=moe_act,layernorm)"


def test_pipelines_of_torchtitan_cut_their_batch_into_samples():
    row = {"framework": "torchtitan FSDP2", "mbs": 8, "gbs": 32, "tp": 1, "sharding": None,
           "layers": 32}
    (strategy,) = read(**row).strategies
    assert (strategy.micro_batch_size, strategy.zero_stage) == (1, 3)


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", "bf16"), ("bf16 (BF16Optimizer)", None)])
def test_deepspeed_sums_gradients_in_the_type_of_the_model(precision, dtype):
    rows = read(framework="Megatron-DeepSpeed", precision=precision, sharding="ZeRO-1")
    assert rows.strategies[0].grad_reduce_dtype == dtype


def test_models_that_see_images_are_refused():
    rows = read(model="multimodal-llava/one")
    assert [problem.rule for problem in rows.refused[0][1]] == ["image-encoder"]


def test_bert_has_its_own_vocabulary():
    assert as_steps_row(ROW | {"model": "bert/large", "vocab": ""})["vocab"] == 30522
