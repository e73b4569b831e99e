"""The logged model as MLflow loads it: a real bundle behind a frame."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from runs import MLFLOW_MARKS, copy_store, make_run, make_template

from predictor.bundle import TrainedModel, TrainingManifest, TrainingSource, write_bundle
from predictor.spec.errors import InputError
from predictor.training.tracking import connection, input_example, log_run, model_of

xgboost = pytest.importorskip("xgboost", reason="xgboost: a booster is trained here")
pytestmark = MLFLOW_MARKS
ROWS = "predictor.training.serving_rows"


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    return make_template(tmp_path_factory.mktemp("store"))


@pytest.fixture
def bundle(tmp_path):
    """A bundle of one small booster, where the run folder will copy it from."""
    x = np.random.default_rng(0).normal(size=(50, 1)).astype(np.float32)
    booster = xgboost.train({"max_depth": 2, "nthread": 1}, xgboost.DMatrix(x, label=x[:, 0]), 3)
    model = TrainedModel(
        name="gemm", features=("log2 m",), units=("1",), booster=booster, low=np.array([-4.0]),
        high=np.array([4.0]), groups=("gemm/fwd/bf16",), centre=np.array([0.0]),
        levels=np.array([0.5, 0.9]), widths=np.full((1, 2, 2), 0.1), params={}, n_rows=50)
    source = TrainingSource(name="made-up", source="here", licence="MIT", rows=50, sha256="0" * 64)
    return write_bundle(
        tmp_path / "bundle-to-copy", [model],
        TrainingManifest(name="predict-time-kernels", created="2026-01-02T03:04:05+00:00",
                         sources=(source,)))


@pytest.fixture
def saved(bundle, template, tmp_path, monkeypatch):
    """Folder of the model that a run with the bundle logged."""
    store = copy_store(template, tmp_path / "store")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    logged = log_run(make_run(tmp_path / "runs", digest=bundle.digest))
    with connection() as client:
        model = model_of(client, logged)
    return tmp_path / "store" / "artifacts" / "models" / model / "artifacts"


@pytest.fixture
def asked(monkeypatch):
    """Stand in for the module that turns rows into features; return what it was called with."""
    calls = []
    module = ModuleType(ROWS)

    def predict_rows(bundle, frame):
        calls.append((bundle, frame))
        return np.arange(len(frame), dtype=float)

    module.predict_rows = predict_rows
    monkeypatch.setitem(sys.modules, ROWS, module)
    return calls


def test_rows_reach_the_opened_bundle(saved, bundle, asked):
    from mlflow.pyfunc import load_model

    answer = load_model(str(saved)).predict(input_example())
    assert list(answer) == [0.0, 1.0]
    [(opened, frame)] = asked
    assert opened.digest == bundle.digest and opened.manifest == bundle.manifest
    pd.testing.assert_frame_equal(frame, input_example(), check_dtype=False)


def test_shapes_that_do_not_apply_may_be_left_out(saved, asked):
    from mlflow.pyfunc import load_model

    given = input_example()[["op", "pass", "dtype", "gpu", "m", "n", "k"]].iloc[:1]
    load_model(str(saved)).predict(given)
    assert list(asked[0][1].columns) == list(given.columns)


def test_rows_without_a_gpu_are_refused(saved, asked):
    from mlflow.exceptions import MlflowException
    from mlflow.pyfunc import load_model

    with pytest.raises(MlflowException, match="gpu"):
        load_model(str(saved)).predict(input_example().drop(columns="gpu"))
    assert asked == []


def test_a_changed_bundle_is_not_served(saved):
    from mlflow.pyfunc import load_model

    with (saved / "artifacts" / "bundle" / "gemm.npz").open("ab") as file:
        file.write(b"x")
    with pytest.raises(InputError, match="bundle-digest"):
        load_model(str(saved))


def test_nothing_beside_the_bundle_is_pickled(saved):
    assert {path.name for path in saved.iterdir()} == {
        "MLmodel", "artifacts", "conda.yaml", "input_example.json", "python_env.yaml",
        "requirements.txt", "served.py", "serving_input_example.json"}
    assert [path.name for path in (saved / "artifacts").iterdir()] == ["bundle"]
    assert "predict-time==" in (saved / "requirements.txt").read_text(encoding="utf-8")
