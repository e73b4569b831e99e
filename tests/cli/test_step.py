"""``predict-time step`` on a job that is right."""

from __future__ import annotations

import json

import pytest
import yaml

from predictor.cli.options import JOB_FIELDS, STRATEGY_FIELDS
from predictor.cli.request import KEYS, build, read_settings


def _document(predict_time, *arguments) -> dict:
    result = predict_time("step", *arguments, "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_text_names_time_memory_and_where_it_goes(predict_time, job_file):
    result = predict_time("step", "--config", job_file)
    assert result.code == 0, result.err
    for words in ("step time", "where it goes", "compute", "tokens/s", "MFU", "memory: fits",
                  "assumed"):
        assert words in result.out


def test_json_is_one_document_whose_parts_sum_to_the_step(predict_time, job_file):
    document = _document(predict_time, "--config", job_file)
    assert document["schema_version"] == 1
    assert sum(document["breakdown"].values()) == pytest.approx(document["step_time_s"], abs=1e-9)
    assert len(document["memory"]["ranks"]) == 2


def test_flag_wins_over_job_file(predict_time, job_file):
    document = _document(predict_time, "--config", job_file, "--pp", "4")
    assert (document["input"]["strategy"]["tp"], document["input"]["strategy"]["pp"]) == (2, 4)


def test_nodes_replace_those_of_the_cluster(predict_time, job_file):
    document = _document(predict_time, "--config", job_file, "--nodes", "1")
    assert document["input"]["cluster"]["groups"][0]["nodes"] == 1


def test_switches_have_two_names(predict_time, job_file):
    for flag, expected in (("--sequence-parallel", True), ("--no-sequence-parallel", False)):
        document = _document(predict_time, "--config", job_file, flag)
        assert document["input"]["strategy"]["sequence_parallel"] is expected


def test_lists_are_given_with_commas(predict_time, job_file):
    document = _document(predict_time, "--config", job_file, "--pipeline-layout", "3,5",
                         "--recompute", "selective", "--recompute-modules", "core_attn,mlp")
    strategy = document["input"]["strategy"]
    assert strategy["pipeline_layout"] == [3, 5]
    assert strategy["recompute_modules"] == ["core_attn", "mlp"]


def test_output_writes_the_document_and_text_is_still_printed(predict_time, job_file, tmp_path):
    target = tmp_path / "step.json"
    result = predict_time("step", "--config", job_file, "--output", target)
    assert "step time" in result.out
    assert json.loads(target.read_text())["step_time_s"] > 0
    assert list(tmp_path.glob(".step.json*")) == []


def test_explain_input_tells_where_every_setting_comes_from(predict_time, job_file):
    out = predict_time("step", "--config", job_file, "--cp", "2", "--explain-input").out
    out = out.split("\n\n")[0]
    origins = {line.split()[0]: " ".join(line.split()[2:]) for line in out.splitlines()
               if line.startswith("  ") and len(line.split()) > 2}
    assert origins["cp"] == "flag"
    assert origins["tp"] == "job file"
    assert origins["schedule"].startswith("framework: ")
    assert origins["zero_stage"] == "default"
    assert {*JOB_FIELDS, *STRATEGY_FIELDS} <= origins.keys()


def test_explain_input_leaves_json_alone(predict_time, job_file):
    result = predict_time("step", "--config", job_file, "--explain-input", "--json")
    assert json.loads(result.out)["step_time_s"] > 0
    assert result.err.startswith("input")


def test_advice_is_a_warning(predict_time, job_file):
    result = predict_time("step", "--config", job_file, "--tp", "16", "--pp", "1")
    assert result.code == 0
    assert result.err.startswith("warning: tp: ")
    assert "[tp-inside-node]" in result.err


def test_quiet_says_nothing_but_errors(predict_time, job_file):
    assert predict_time("-q", "step", "--config", job_file, "--tp", "16", "--pp", "1").err == ""
    assert predict_time("step", "--config", job_file, "--tp", "16", "--pp", "1", "-q").err == ""


def test_a_job_that_does_not_fit_is_an_answer_unless_asked(predict_time, job_file):
    big = ("--micro-batch-size", "8", "--seq-len", "131072")
    assert predict_time("step", "--config", job_file, *big).code == 0
    result = predict_time("step", "--config", job_file, *big, "--fail-on", "oom")
    assert result.code == 1
    assert "does NOT fit" in result.out


def test_presets_are_found_by_name(predict_time):
    document = _document(predict_time, "--model", "llama-3-8b", "--cluster", "dgx-h100",
                         "--nodes", "2", "--tp", "2", "--seq-len", "8192",
                         "--global-batch-size", "64", "--recompute", "full")
    assert document["input"]["model"]["hidden_size"] == 4096
    assert document["input"]["strategy"]["dp"] == 8


def test_every_field_is_a_key_of_the_job_file(job_file):
    assert {*JOB_FIELDS, *STRATEGY_FIELDS, "model", "cluster", "nodes"} == KEYS


def test_the_input_of_a_document_is_a_job_file(predict_time, job_file, tmp_path):
    """What was predicted can be predicted again from the document alone."""
    first = _document(predict_time, "--config", job_file)
    given = first["input"]
    job = {"model": given["model"], "cluster": given["cluster"], **given["job"],
           **given["strategy"]}
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump({key: value for key, value in job.items()
                                     if value is not None}))
    assert _document(predict_time, "--config", again)["step_time_s"] == first["step_time_s"]


def test_build_needs_no_file(job_file):
    job, strategy = build(read_settings(str(job_file)))
    assert (job.cluster.num_gpus, strategy.tp) == (16, 2)


def test_trace_is_written(predict_time, job_file, tmp_path):
    target = tmp_path / "trace.json"
    assert predict_time("step", "--config", job_file, "--trace", target).code == 0
    assert len(json.loads(target.read_text())["traceEvents"]) > 10
