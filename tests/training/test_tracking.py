"""Logging to real stores: a SQLite file, and servers that are away or die."""

from __future__ import annotations

import importlib.util
import os
import socket
import time
import warnings

import pytest
from runs import (
    DATA, DIGEST, MLFLOW_MARKS, STARTED_MS, Server, copy_store, free_port, make_run,
    make_template, serving,
)

from predictor.spec.errors import InputError
from predictor.training.record import pending, read_run, write_run
from predictor.training.tracking import (
    COMPLETE_TAG, EXPERIMENT, PATIENCE, connection, log_pending, log_run, metric_name, model_of,
    requirements, store_uri,
)

pytestmark = MLFLOW_MARKS


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    return make_template(tmp_path_factory.mktemp("store"))


@pytest.fixture
def store(template, tmp_path, monkeypatch):
    """Address of an empty store; anything else would be written below the test's folder too."""
    monkeypatch.setenv("PREDICT_TIME_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    return copy_store(template, tmp_path / "store")


def runs_in(store):
    with connection(store) as client:
        experiment = client.get_experiment_by_name(EXPERIMENT)
        return client.search_runs([experiment.experiment_id]) if experiment else []


def test_a_run_is_logged_whole(store, tmp_path):
    record = make_run(tmp_path / "runs")
    parts = []
    logged = log_run(record, store, progress=parts.append)
    assert read_run(record.folder).logged == logged
    assert parts == ["run", "params", "metrics", "datasets", "files", "model"]
    [run] = runs_in(store)
    assert run.info.run_id == logged and run.info.run_name == "run-1"
    assert run.info.status == "FINISHED"
    assert (run.info.start_time, run.info.end_time) == (STARTED_MS, STARTED_MS + 2500)
    assert run.data.params == {"depth": "8", "objective": "absoluteerror"}
    assert run.data.metrics["mape/gemm/bf16"] == 4.0
    assert run.data.metrics["coverage/gemm/all"] == 90.0
    assert run.data.metrics["seconds"] == 2.5
    assert len(run.data.metrics) == 1 + 2 * 6
    assert run.data.tags["mlflow.source.git.commit"] == "c0ffee"
    assert run.data.tags[COMPLETE_TAG] == "true"
    [data] = run.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == (DATA.name, DATA.sha256[:36])
    assert {tag.key: tag.value for tag in data.tags} == {"licence": "MIT", "sha256": DATA.sha256}


def test_artifacts_lie_beside_the_store_and_the_model_holds_the_bundle(store, tmp_path):
    record = make_run(tmp_path / "runs")
    logged = log_run(record, store)
    with connection(store) as client:
        assert [one.path for one in client.list_artifacts(logged)] == ["plots", "run.json",
                                                                       "worst_rows.csv"]
        model = client.get_logged_model(model_of(client, logged))
    assert model.tags["predict_time.digest"] == DIGEST
    folder = tmp_path / "store" / "artifacts" / "models" / model.model_id / "artifacts"
    assert model.artifact_location == folder.as_uri()
    assert (folder / "artifacts" / "bundle" / "gemm.npz").read_bytes() == bytes(range(256))
    assert (folder / "served.py").is_file() and not list(folder.rglob("*.pkl"))
    assert (folder / "requirements.txt").read_text("utf-8").splitlines() == requirements()
    assert not (tmp_path / "mlruns").exists()


def test_the_signature_needs_what_names_a_kernel_and_takes_every_shape(store, tmp_path):
    from mlflow.models import Model

    logged = log_run(make_run(tmp_path / "runs"), store)
    with connection(store) as client:
        model = model_of(client, logged)
    saved = tmp_path / "store" / "artifacts" / "models" / model / "artifacts"
    inputs = Model.load(str(saved)).signature.inputs
    assert inputs.required_input_names() == ["op", "pass", "dtype", "gpu"]
    assert {"m", "n", "k", "seq", "head_dim", "window", "topk"} <= set(
        inputs.optional_input_names())


def test_a_logged_run_is_not_logged_again(store, tmp_path):
    record = make_run(tmp_path / "runs")
    logged = log_run(record, store)
    assert log_run(record, store) == logged  # this record does not know yet
    assert log_pending(tmp_path / "runs", store) == {}
    assert len(runs_in(store)) == 1


def test_a_run_whose_mark_was_lost_is_found_again(store, tmp_path):
    record = make_run(tmp_path / "runs")
    before = (record.folder / "run.json").read_bytes()
    logged = log_run(record, store)
    (record.folder / "run.json").write_bytes(before)
    assert log_pending(tmp_path / "runs", store) == {"run-1": logged}
    assert len(runs_in(store)) == 1


def test_another_training_of_the_same_name_is_another_run(store, tmp_path):
    one = log_run(make_run(tmp_path / "here"), store)
    two = log_run(make_run(tmp_path / "there", digest="e" * 64), store)
    assert one != two and len(runs_in(store)) == 2


@pytest.mark.parametrize("part", ["params", "metrics", "datasets", "files", "model"])
def test_a_run_that_stopped_midway_is_taken_up(store, tmp_path, part):
    record = make_run(tmp_path / "runs")

    def stop(name):
        if name == part:
            raise OSError(28, "No space left on device")

    said = []
    assert log_run(record, store, progress=stop, warn=said.append) is None
    assert len(said) == 1 and "No space left" in said[0]
    logged = log_pending(tmp_path / "runs", store)
    [run] = runs_in(store)
    assert logged == {"run-1": run.info.run_id} and run.data.tags[COMPLETE_TAG] == "true"
    with connection(store) as client:
        assert len(client.get_metric_history(run.info.run_id, "mape/gemm/all")) == 1
        assert model_of(client, run.info.run_id) is not None
    assert len(run.inputs.dataset_inputs) == len(run.outputs.model_outputs) == 1


def test_a_model_that_was_begun_is_finished_not_doubled(store, tmp_path, monkeypatch):
    record = make_run(tmp_path / "runs")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("predictor.training.tracking.save_model", full)
        assert log_run(record, store, warn=lambda _: None) is None
    [run] = runs_in(store)
    with connection(store) as client:
        assert model_of(client, run.info.run_id) is None
    log_run(record, store)
    [run] = runs_in(store)
    assert len(run.outputs.model_outputs) == 1
    with connection(store) as client:
        assert model_of(client, run.info.run_id) == run.outputs.model_outputs[0].model_id


def test_a_server_that_is_away_costs_seconds_and_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    record = make_run(tmp_path / "runs")
    away, said = f"http://user:secret@127.0.0.1:{free_port()}", []
    start = time.monotonic()
    assert log_run(record, away, warn=said.append) is None
    assert log_pending(tmp_path / "runs", away, warn=said.append) == {}
    assert time.monotonic() - start < 30
    assert len(said) == 2
    for line in said:
        assert "\n" not in line and "secret" not in line
        assert f"predict-time models log --runs {tmp_path / 'runs'}" in line
    assert pending(tmp_path / "runs") == [record]
    assert "MLFLOW_HTTP_REQUEST_TIMEOUT" not in os.environ


def test_a_server_that_never_answers_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    record, said = make_run(tmp_path / "runs"), []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start = time.monotonic()
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert log_run(record, uri, warn=said.append) is None
    assert time.monotonic() - start < 20 and len(said) == 1
    assert pending(tmp_path / "runs") == [record]


def test_by_default_the_line_is_a_warning(tmp_path):
    record = make_run(tmp_path / "runs")
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match="run run-1 is kept in"):
        assert log_run(record, f"sqlite:///{tmp_path}/file/mlflow.db") is None


def test_without_mlflow_the_run_waits_and_the_line_says_what_to_install(tmp_path, monkeypatch):
    record, said = make_run(tmp_path / "runs"), []
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec",
                        lambda name, *rest: None if name == "mlflow" else find(name, *rest))
    assert log_run(record, warn=said.append) is None
    assert "install predict-time[tracking]" in said[0]
    with pytest.raises(InputError, match="tracking-installed"), connection():
        pass


def test_the_users_own_store_is_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PREDICT_TIME_CACHE", str(tmp_path / "c"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert store_uri() == f"sqlite:///{tmp_path}/c/mlflow/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://there")
    assert store_uri() == "http://there"
    assert store_uri("http://here") == "http://here"
    monkeypatch.delenv("PREDICT_TIME_CACHE")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store_uri() == f"sqlite:///{tmp_path}/.cache/predict-time/mlflow/mlflow.db"


def test_a_setting_of_the_user_is_left_alone(store, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    with connection(store):
        assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
        assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == PATIENCE[
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES"]
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


NAMES = ("bf16", "gemm/fwd/bf16", "a&b", "a_b", "a+b", "..", ".", "", "a//b", "/a", "a/", "µ",
         "a" * 400, "a" * 401, " ")


def test_parameters_may_have_any_name(store, tmp_path):
    record = make_run(tmp_path / "runs")
    params = {name: 1 for name in NAMES if len(name) < 200}
    other = write_run(
        tmp_path / "runs" / "odd", started=record.started, seconds=1.0, git_commit="",
        command="x" * 9000, params={**params, "long": "y" * 9000, "none": None}, metrics={},
        datasets=[], bundle=record.bundle, digest=DIGEST, plots={}, worst_rows="")
    assert log_run(other, store) is not None
    [run] = runs_in(store)
    assert len(run.data.params) == len(params) + 2


@pytest.mark.parametrize("group", NAMES)
def test_mlflow_takes_every_metric_name(group):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow.utils.validation import _validate_metric_name

    _validate_metric_name(metric_name("mape", "gemm", group))


def test_metric_names_are_told_apart_and_plain_ones_kept():
    assert metric_name("mape", "gemm", "fwd/bf16") == "mape/gemm/fwd/bf16"
    assert len({metric_name("mape", "gemm", group) for group in NAMES}) == len(NAMES)


@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_a_server_killed_while_a_run_is_logged_loses_nothing(store, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    first, second = make_run(tmp_path / "runs"), make_run(tmp_path / "runs", "run-2")
    said = []
    with serving(tmp_path / "store", store) as server:

        def kill(part):
            if part == "datasets":  # between two calls: params and metrics are there already
                server.kill()

        assert log_run(first, server.uri, progress=kill, warn=said.append) is None
    assert len(said) == 1 and "fails" in said[0]
    [half] = runs_in(store)
    assert half.info.status == "RUNNING" and half.data.metrics["mape/gemm/all"] == 5.0
    assert read_run(first.folder) == first
    with serving(tmp_path / "store", store) as server:
        logged = log_pending(tmp_path / "runs", server.uri)
        assert set(logged) == {"run-1", "run-2"} and logged["run-1"] == half.info.run_id
        assert log_pending(tmp_path / "runs", server.uri) == {}
    found = runs_in(store)
    assert len(found) == 2 and {run.info.status for run in found} == {"FINISHED"}
    assert read_run(second.folder).logged == logged["run-2"]
    assert pending(tmp_path / "runs") == []


def test_servers_of_tests_end(tmp_path, template):
    """The helper kills what it started even when the server never answered."""
    server = Server(tmp_path, copy_store(template, tmp_path / "store"))
    server.kill()
    assert server.process.returncode == -9
