"""The models verb on a real SQLite store."""

from __future__ import annotations

import importlib.util
import json

import click
import pytest
from runs import MLFLOW_MARKS, copy_store, free_port, make_run, make_template

from predictor.cli.main import root
from predictor.training.record import read_run
from predictor.training.registry import COLLECTIVES, KERNELS, register
from predictor.training.tracking import log_run

pytestmark = MLFLOW_MARKS


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    return make_template(tmp_path_factory.mktemp("store"))


@pytest.fixture
def store(template, tmp_path, monkeypatch):
    """Make an empty store the one in use."""
    uri = copy_store(template, tmp_path / "store")
    monkeypatch.setenv("PREDICT_TIME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


@pytest.fixture
def versions(store, tmp_path):
    """Three kernel versions: fair, better, and worse for bf16."""
    for number, bf16 in enumerate((4.0, 3.0, 9.0), start=1):
        record = make_run(tmp_path / "runs", f"run-{number}", mape={"all": 5.0, "bf16": bf16})
        log_run(record)
        register(record, KERNELS)


def test_an_empty_list(predict_time, store):
    result = predict_time("models", "list")
    assert (result.code, result.out.strip(), result.err) == (0, "", "")


def test_the_list_has_one_line_a_version(predict_time, versions):
    predict_time("models", "promote", KERNELS, "--version", 1)
    lines = predict_time("models", "list").out.splitlines()
    assert [line.split("\t")[:3] for line in lines] == [
        [KERNELS, "3", ""], [KERNELS, "2", ""], [KERNELS, "1", "champion"]]
    assert lines[0].split("\t")[4:] == ["run-3", "gemm 5.0 %"]


def test_the_list_as_a_document(predict_time, versions, tmp_path):
    file = tmp_path / "versions.json"
    result = predict_time("models", "list", "--json", "--output", file)
    document = json.loads(result.out)
    assert json.loads(file.read_text(encoding="utf-8")) == document
    assert document["schema_version"] == 1
    first = document["versions"][-1]
    assert (first["version"], first["aliases"]) == (1, [])
    assert first["mape"] == {"gemm/all": 5.0, "gemm/bf16": 4.0}


def test_promotion_and_the_way_back(predict_time, versions):
    one = predict_time("models", "promote", KERNELS, "--version", 1)
    assert one.out == f"{KERNELS}: version 1 is the champion\n"
    two = predict_time("models", "promote", KERNELS, "--version", 2)
    assert two.out == f"{KERNELS}: version 2 is the champion, before it was 1\n"
    back = predict_time("models", "rollback", KERNELS, "--json")
    assert back.code == 0
    document = json.loads(back.out)
    assert (document["name"], document["version"], document["before"]) == (KERNELS, 1, 2)


def test_a_worse_version_is_refused_and_cannot_be_forced(predict_time, versions):
    predict_time("models", "promote", KERNELS, "--version", 1)
    result = predict_time("models", "promote", KERNELS, "--version", 3)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: gemm/bf16: its MAPE of 9.00 % is worse")
    assert predict_time("models", "promote", KERNELS, "--version", 3, "--force").code == 2
    assert "champion" in predict_time("models", "list").out.splitlines()[-1]


@pytest.mark.parametrize(("arguments", "words"), [
    (("promote", KERNELS, "--version", 9), "model-version"),
    (("promote", KERNELS, "--version", 0), "--version"),
    (("promote", KERNELS), "--version"),
    (("promote", "theirs", "--version", 1), "theirs"),
    (("rollback", COLLECTIVES), "previous-champion"),
    (("log", "--runs", "nowhere"), "runs-folder"),
    (("list", "--output", "nowhere/x.json"), "output-folder"),
])
def test_wrong_input_is_told_and_exits_with_2(predict_time, store, arguments, words):
    result = predict_time("models", *arguments)
    assert result.code == 2 and words in result.err and result.out == ""


def test_runs_that_wait_are_logged_later(predict_time, store, tmp_path, monkeypatch):
    record = make_run(tmp_path / "runs")
    with monkeypatch.context() as away:
        away.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        away.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
        result = predict_time("models", "log", "--runs", tmp_path / "runs")
    assert (result.code, result.out) == (1, "0 runs logged, 1 pending\n")
    assert result.err.startswith("warning: 1 runs stay pending")
    assert result.err.count("\n") == 1
    later = predict_time("models", "log", "--runs", tmp_path / "runs", "--json", "-v")
    logged = read_run(record.folder).logged
    document = json.loads(later.out)
    assert later.code == 0
    assert (document["logged"], document["pending"]) == ({"run-1": logged}, [])
    assert "logging metrics" in later.err
    assert predict_time("models", "log", "--runs", tmp_path / "runs").out.startswith("0 runs")


def test_without_mlflow_it_says_what_to_install(predict_time, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec",
                        lambda name, *rest: None if name == "mlflow" else find(name, *rest))
    for arguments in (("list",), ("promote", KERNELS, "--version", 1), ("rollback", KERNELS)):
        result = predict_time("models", *arguments)
        assert result.code == 2 and "install predict-time[tracking]" in result.err


def test_every_verb_of_the_group_has_json_output_and_common_flags():
    group = root.get_command(click.Context(root), "models")
    assert isinstance(group, click.Group)
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        flags = {option for param in command.params for option in param.opts}
        assert {"--json", "--output", "--verbose", "--quiet", "--debug"} <= flags
        assert command.get_short_help_str()
