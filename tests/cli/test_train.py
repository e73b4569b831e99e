import json

import pytest
from kernels_made_up import data_folder
from runs import MLFLOW_MARKS, copy_store, make_template

from predictor.bundle import open_bundle

pytestmark = MLFLOW_MARKS


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return data_folder(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    return make_template(tmp_path_factory.mktemp("store"))


def test_a_training_prints_its_scores_and_copies_its_bundle(predict_time, data, tmp_path):
    result = predict_time("train", "gemm", "--data", data, "--source", "kernels-long", "--runs",
                          tmp_path / "runs", "--bundle", tmp_path / "bundle", "--no-log")
    assert result.code == 0
    assert "gemm_shape" in result.out and "written to" in result.out
    assert set(open_bundle(tmp_path / "bundle").models) == {"gemm"}


def test_a_training_is_logged_and_registered(predict_time, data, tmp_path, template, monkeypatch):
    monkeypatch.setenv("PREDICT_TIME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", copy_store(template, tmp_path / "store"))
    result = predict_time("train", "gemm", "--data", data, "--source", "kernels-long", "--runs",
                          tmp_path / "runs", "--register", "--json")
    found = json.loads(result.out)
    assert result.code == 0
    assert found["registered"] == {}  # one model alone stands for no registered name
    run = json.loads((tmp_path / "runs" / found["run"] / "run.json").read_text())
    assert run["logged"]


def test_registering_needs_logging(predict_time, data, tmp_path):
    result = predict_time("train", "gemm", "--data", data, "--runs", tmp_path, "--register",
                          "--no-log")
    assert result.code == 2
    assert "register-logged" in result.err


def test_an_unknown_family_exits_with_2_and_writes_nothing(predict_time, data, tmp_path):
    result = predict_time("train", "gem", "--data", data, "--runs", tmp_path / "runs")
    assert result.code == 2
    assert "choose one of all, kernels, gemm" in result.err
    assert not (tmp_path / "runs").exists()
