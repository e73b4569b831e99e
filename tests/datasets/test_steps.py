"""Reading a whole table of measured steps."""

from __future__ import annotations

import time

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictor.datasets.row import may_be_read
from predictor.datasets.steps import read_row, read_steps
from predictor.spec.errors import InputError
from predictor.spec.resolve import resolve
from predictor.spec.rules import check_strategy

ROW = {
    "id": "x", "framework": "Megatron-LM", "gpu": "A100", "num_gpus": 8, "arch": "gpt",
    "num_layers": 4, "hidden": 512, "num_heads": 8, "vocab": 1000, "seq_len": 128,
    "global_batch": 8, "micro_batch": 1, "step_time_s": 1.0, "oom": False}


def test_csv_parquet_and_frame_read_alike(tmp_path):
    frame = pd.DataFrame([ROW, {**ROW, "id": "y", "hidden": None}])
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    for source in (frame, tmp_path / "t.csv", tmp_path / "t.parquet"):
        found = read_steps(source)
        assert found.row_index == (0,)
        assert [label for label, _ in found.refused] == [1]
        assert found.refused[0][1][0].where == "hidden"
        assert found.jobs[0].model.hidden_size == 512


def test_rows_keep_the_labels_of_the_frame():
    frame = pd.DataFrame([ROW, ROW], index=[7, 3])
    assert read_steps(frame).row_index == (7, 3)


@pytest.mark.parametrize("column", ["id", "source", "source_ref", "family", "notes", "date",
                                    "rank_group", "tier", "step_time_s", "tokens_per_s_per_gpu",
                                    "mfu", "chk_ratio", "consistency", "oom"])
def test_outcomes_may_not_be_read(column):
    assert not may_be_read(column)


def test_a_blank_gpu_count_and_batch_are_told_together():
    with pytest.raises(InputError) as caught:
        read_row({**ROW, "num_gpus": None, "global_batch": None})
    assert [problem.where for problem in caught.value.problems] == ["num_gpus", "global_batch"]


@pytest.mark.parametrize(("framework", "word"), [
    ("Megatron-LM + ZB", "megatron"), ("GPT-NeoX/DeepSpeed", "megatron-deepspeed"),
    ("Megatron-Bridge/Megatron-Core", "nemo"), ("NeMo/Megatron-LM", "nemo"),
    ("torchtitan (FSDP2)", "torchtitan"), ("MaxText (JAX)", "maxtext"),
    ("llm-foundry/Composer FSDP", "llm-foundry"), ("LiBai (OneFlow)", "libai")])
def test_framework_words(framework, word):
    assert read_row({**ROW, "framework": framework})[0].framework == word


def test_early_zero_beside_megatron_is_deepspeeds():
    early = {**ROW, "framework_version": "2021", "zero_stage": "3"}
    assert read_row(early)[0].framework == "megatron-deepspeed"
    assert read_row({**early, "zero_stage": "1"})[0].framework == "megatron"


@pytest.mark.parametrize(("cell", "gpu", "backend"), [
    ("0", "A100", "fused-softmax"), ("no/local", "A100", "fused-softmax"),
    ("SDPA", "H100", "flash"), ("yes (cuDNN/TE)", "H100", "flash"),
    (None, "A100", "flash"), (None, "V100", "fused-softmax")])
def test_attention(cell, gpu, backend):
    job, _, assumed = read_row({**ROW, "flash_attention": cell, "gpu": gpu})
    assert job.attention_backend == backend
    assert ("attention_backend" in assumed) == (cell is None)


def test_workloads():
    lora = read_row({**ROW, "workload": "lora", "model_name": "llama2-70b (LoRA r16)"})[0]
    assert (lora.workload, lora.lora_rank) == ("lora", 16)
    assert read_row({**ROW, "workload": "sft-full"})[0].workload == "sft"
    assert read_row({**ROW, "workload": "pretrain(mock data)"})[0].workload == "pretrain"


CELL = st.one_of(st.none(), st.integers(), st.floats(), st.booleans(), st.text(max_size=12))


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from([
    "gpu", "num_gpus", "gpus_per_node", "interconnect_intra", "interconnect_inter", "arch",
    "num_layers", "num_experts", "topk", "head_dim", "tp", "pp", "vpp", "cp", "ep", "dp",
    "micro_batch", "grad_accum", "schedule", "zero_stage", "fsdp", "precision", "recompute",
    "overlap", "optimizer_offload", "workload", "attn_kind", "model_name"]), CELL, max_size=6))
def test_odd_cells_are_read_or_refused(cells):
    try:
        job, strategy, _ = read_row({**ROW, **cells})
    except InputError as error:
        assert all(problem.message for problem in error.problems)
    else:
        assert job.cluster.num_gpus >= 1
        assert strategy.tp >= 1


@pytest.mark.reference
def test_published_rows_are_read_and_legal(reference):
    began = time.perf_counter()
    found = read_steps(reference / "steps" / "published_steps.csv")
    seconds = time.perf_counter() - began
    frame = found.frame
    legal = [label for label, job, strategy in zip(
        found.row_index, found.jobs, found.strategies, strict=True)
        if not check_strategy(*resolve(job, strategy)[:2])]
    complete = frame.index[frame["tier"].isin(["A", "B"])]
    assert len(set(complete) & set(legal)) >= 0.98 * len(complete)
    assert len({(problem.rule, problem.where) for _, why in found.refused for problem in why}) <= 12
    assert seconds < 4.0, "0.2 s on a quiet machine"
    for label, job in zip(found.row_index, found.jobs, strict=True):
        assert job.cluster.num_gpus == frame.at[label, "num_gpus"]


@pytest.mark.reference
def test_ci_rows_are_read(reference):
    found = read_steps(reference / "steps" / "megatron_ci_steps.csv")
    assert not found.refused
