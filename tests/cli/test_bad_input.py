"""Wrong input: one line for each problem on standard error, exit code 2, no traceback."""

from __future__ import annotations

import re

import pytest
import yaml

JOB_HEAD = "{model: llama-3-8b, cluster: dgx-h100, seq_len: 2048, global_batch_size: 64}"
WIDE = "heads-divisible-by-tp"

# name, flags, text appended to the job file, rules expected (None: the command line's own error)
CASES = [
    ("unknown flag", ["--tensor-parallel", "2"], "", [None]),
    ("flag without value", ["--tp"], "", [None]),
    ("unknown word for fail-on", ["--fail-on", "fire"], "", [None]),
    ("text for a number", ["--tp", "two"], "", ["wrong-type"]),
    ("fraction for a number", ["--tp", "2.5"], "", ["wrong-type"]),
    ("empty number", ["--tp", ""], "", ["wrong-type"]),
    ("zero", ["--tp", "0"], "", ["positive"]),
    ("negative", ["--micro-batch-size", "-4"], "", ["positive"]),
    ("huge", ["--seq-len", "9" * 30], "", ["positive"]),
    ("thousands of digits", ["--pp", "9" * 5000], "", ["wrong-type"]),
    ("not a number", ["--activation-offload", "nan"], "", ["plain-json"]),
    ("infinite", ["--moe-load-imbalance", "inf"], "", ["plain-json"]),
    ("share above one", ["--optimizer-offload", "1.5"], "", ["within"]),
    ("unknown precision", ["--precision", "fp7"], "", ["wrong-type"]),
    ("unknown framework", ["--framework", "mégatron"], "", ["wrong-type"]),
    ("unknown recompute module", ["--recompute-modules", "core_attn,mlpp"], "", ["wrong-type"]),
    ("text in a layout", ["--pipeline-layout", "4,x"], "", ["wrong-type"]),
    ("typo in the model", ["--model", "llama-3-70"], "", ["known-model"]),
    ("typo in the cluster", ["--cluster", "dgx-h1000"], "", ["known-cluster"]),
    ("no nodes", ["--nodes", "0"], "", ["positive"]),
    ("text for nodes", ["--nodes", "many"], "", ["positive"]),
    ("tp does not divide", ["--tp", "3", "--nodes", "3", "--pp", "1", "--global-batch-size", "8"],
     "", [WIDE, "ffn-divisible-by-tp"]),
    ("product is not the world", ["--tp", "8", "--pp", "4"], "", ["degrees-fill-cluster"]),
    ("dp disagrees", ["--dp", "8"], "", ["degrees-fill-cluster"]),
    ("batch does not divide", ["--global-batch-size", "63"], "", ["batch-divisible-by-replicas"]),
    ("experts of a dense model", ["--ep", "2"], "", ["expert-parallel-needs-experts"]),
    ("precision without units", ["--precision", "fp8"], "", ["precision-in-hardware"]),
    ("schedule of another framework", ["--schedule", "gpipe"], "", ["schedule-in-framework"]),
    ("chunks without interleaving", ["--vpp", "2", "--schedule", "1f1b"], "",
     ["chunks-need-interleaving"]),
    ("layout too short", ["--pipeline-layout", "8"], "", ["layout-covers-model"]),
    ("odd sequence with cp", ["--cp", "2", "--seq-len", "2046"], "",
     ["sequence-divisible-by-twice-cp"]),
    ("lora without rank", ["--workload", "lora"], "", ["lora-needs-rank"]),
    ("advice taken strictly", ["--tp", "16", "--pp", "1", "--strict"], "", ["tp-inside-node"]),
    ("three problems", ["--tp", "0", "--precision", "x", "--seq-len", "-1"], "",
     ["positive", "wrong-type", "positive"]),
    ("unknown key", [], "tensor_parallel: 2\n", ["unknown-key"]),
    ("two unknown keys", [], "tq: 2\n'\u200b': 1\n", ["unknown-key", "unknown-key"]),
    ("number as text", [], "ep: '2'\n", ["wrong-type"]),
    ("number as key", [], "12: 3\n", ["readable-file"]),
    ("switch as number", [], "sequence_parallel: 1\n", ["wrong-type"]),
    ("NaN in the file", [], "activation_offload: .nan\n", ["plain-json"]),
    ("date for a number", [], "vpp: 2026-01-01\n", ["plain-json"]),
    ("list for a number", [], "cp: [1, 2]\n", ["wrong-type"]),
    ("broken YAML", [], "cp: [1, 2\n", ["readable-file"]),
    ("tab in YAML", [], "\tcp: 2\n", ["readable-file"]),
    ("object in YAML", [], "cp: !!python/object/apply:os.getcwd []\n", ["readable-file"]),
    ("alias in YAML", [], "cp: &two 2\nep: *two\n", ["readable-file"]),
    ("key given twice", [], "tp: 4\n", ["readable-file"]),
]

REPLACED = [
    ("typo in the GPU", "cluster", {"base": "dgx-h100", "gpu": "h1000"}, "known-gpu"),
    ("unknown key of the cluster", "cluster", {"base": "dgx-h100", "gpuz": 8}, "unknown-key"),
    ("negative bandwidth", "cluster", {"base": "dgx-h100", "levels": {
        "intra-node": {"bandwidth_bytes_per_s": -1.0}}}, "positive"),
    ("model as a list", "model", [1], "wrong-type"),
    ("wrong size in the model", "model", {"base": "llama-3-8b", "num_layers": -1}, "positive"),
    ("text in the model", "model", {"base": "llama-3-8b", "num_layers": "many"}, "wrong-type"),
    ("NaN in the model", "model", {"base": "llama-3-8b", "num_layers": float("nan")},
     "plain-json"),
]

FILES = [
    ("binary", b"\x00\xff\xfe\x80" * 10, "readable-file"),
    ("latin-1", "model: größe".encode("latin-1"), "readable-file"),
    ("control characters", b"tp: 2\x01\n", "readable-file"),
    ("empty", b"", "readable-file"),
    ("list", b"- 1\n- 2\n", "readable-file"),
    ("plain word", b"hello", "readable-file"),
    ("deep nesting", b"[" * 3000, "readable-file"),
]


def test_there_are_at_least_forty_distinct_cases():
    assert len({case[0] for case in CASES} | {case[0] for case in FILES}) >= 40


@pytest.mark.parametrize(("flags", "extra", "rules"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])
def test_wrong_setting_is_one_line(predict_time, job_file, flags, extra, rules):
    job_file.write_text(job_file.read_text() + extra, encoding="utf-8")
    _assert_wrong(predict_time("step", "--config", job_file, *flags), rules)


@pytest.mark.parametrize(("key", "value", "rule"), [case[1:] for case in REPLACED],
                         ids=[case[0] for case in REPLACED])
def test_wrong_model_or_cluster_is_one_line(predict_time, job_file, key, value, rule):
    settings = yaml.safe_load(JOB_HEAD) | {key: value}
    job_file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    _assert_wrong(predict_time("step", "--config", job_file), [rule])


@pytest.mark.parametrize(("content", "rule"), [case[1:] for case in FILES],
                         ids=[case[0] for case in FILES])
def test_wrong_file_is_one_line(predict_time, tmp_path, content, rule):
    path = tmp_path / "job.yaml"
    path.write_bytes(content)
    _assert_wrong(predict_time("step", "--config", path), [rule])


def test_missing_file_is_one_line(predict_time, tmp_path):
    _assert_wrong(predict_time("step", "--config", tmp_path / "none.yaml"), ["readable-file"])


def test_folder_is_no_job_file(predict_time, tmp_path):
    _assert_wrong(predict_time("step", "--config", tmp_path), ["readable-file"])


def test_name_with_a_zero_byte_is_no_file(predict_time):
    _assert_wrong(predict_time("step", "--config", "a\0b"), ["readable-file"])


def test_everything_missing_is_said_at_once(predict_time):
    result = predict_time("step", "--tp", "1")
    _assert_wrong(result, ["missing-key"] * 4)
    assert "--model" in result.err
    assert "--cluster" in result.err


def test_output_to_a_folder_that_is_not_there(predict_time, job_file, tmp_path):
    result = predict_time("step", "--config", job_file, "--output", tmp_path / "no" / "out.json")
    _assert_wrong(result, ["output-folder"])


def test_unknown_verb_is_one_line(predict_time):
    _assert_wrong(predict_time("stepp"), [None])


def _assert_wrong(result, rules) -> None:
    lines = result.err.splitlines()
    assert result.code == 2, result.err
    assert result.out == ""
    assert "Traceback" not in result.err
    assert all(line.startswith("error: ") for line in lines), result.err
    found = [match.group(1) if (match := re.search(r"\[([a-z0-9-]+)\]$", line)) else None
             for line in lines]
    assert sorted(found, key=str) == sorted(rules, key=str)
