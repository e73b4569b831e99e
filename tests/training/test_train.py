import numpy as np
import pytest
from kernels_made_up import data_folder, linear_layers

from predictor.bundle import open_bundle
from predictor.datasets.kernels import measurements
from predictor.datasets.sources import kernels_long
from predictor.spec.errors import InputError
from predictor.timing.device import Regime
from predictor.timing.learned import LearnedTimer
from predictor.training.fit import cross_validated, fit, fold_of, residuals
from predictor.training.learning_rows import cell_weights, conditions_of, kernel_rows
from predictor.training.record import read_run
from predictor.training.train import Training, models_of, train

SMALL = {"n_estimators": 60, "max_leaves": 16, "n_jobs": 1}


@pytest.fixture(scope="module")
def found():
    return measurements(kernels_long.tidy(linear_layers()))


@pytest.fixture(scope="module")
def rows(found):
    return kernel_rows(found)["gemm"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One training, from a table on disk to a run folder."""
    folder = tmp_path_factory.mktemp("training")
    training = Training(data_folder(folder / "data"), "gemm", sources=("kernels-long",),
                        created="2026-01-01T00:00:00+00:00")
    said: list[str] = []
    return train(training, folder / "runs", said.append), said, training, folder


def test_a_backward_pass_is_two_kernels_that_share_its_ratio(rows) -> None:
    counts = np.bincount(rows.measurement)
    assert set(counts.tolist()) == {1, 2}
    pair = np.flatnonzero(rows.measurement == int(np.argmax(counts == 2)))
    assert len(set(rows.log_ratio[pair])) == 1
    assert rows.groups[rows.group[pair[1]]] == "gemm/weight/bf16"


def test_a_table_a_hundred_times_larger_weighs_ten_times_as_much() -> None:
    weight = cell_weights(np.repeat(["small", "large"], [10, 1000]))
    assert weight[10:].sum() / weight[:10].sum() == pytest.approx(10.0)


def test_equal_keys_share_a_fold() -> None:
    keys = np.tile(np.arange(20), 3)
    fold = fold_of(keys, 4, seed=0)
    assert (fold[:20] == fold[20:40]).all() and set(fold.tolist()) == {0, 1, 2, 3}


def test_shapes_never_seen_are_predicted_better_than_by_physics_alone(rows) -> None:
    held = cross_validated(rows, rows.shape, **SMALL)
    assert np.abs(held).mean() < 0.5 * np.abs(rows.log_ratio).mean()


def test_a_measurement_is_predicted_as_the_sum_of_its_kernels(rows) -> None:
    fitted = fit(rows, **SMALL)
    residual = residuals(rows, fitted)
    pair = np.flatnonzero(rows.measurement == int(np.argmax(np.bincount(rows.measurement) == 2)))
    total = (rows.analytic_s * np.exp(fitted.predict(rows.x)))[pair].sum()
    assert residual[pair] == pytest.approx(np.log(rows.measured_s[pair[0]] / total))


def test_a_run_folder_holds_scores_bundle_pictures_and_worst_rows(run) -> None:
    record, said, _, _ = run
    assert read_run(record.folder) == record
    assert {"gemm_analytic", "gemm_shape", "gemm_gpu", "gemm_source"} == set(record.metrics)
    assert record.metrics["gemm_shape"]["all"].rows == 720
    assert {path.name for path in record.plots} == {"gemm-errors.png", "gemm-predicted.png"}
    assert record.worst_rows.read_text().startswith("model,held_out,group,source,gpu")
    assert said[0] == "reading kernels"


def test_intervals_cover_what_they_promise(run) -> None:
    score = run[0].metrics["gemm_shape"]["all"]
    assert 84 <= score.coverage <= 96


def test_the_bundle_predicts_what_was_learned(run, found) -> None:
    timer = LearnedTimer(open_bundle(run[0].bundle).models)
    answer = timer.estimate_kernels(found.table, found.gpus, regime=Regime.ISOLATED,
                                    conditions=conditions_of(found), level=0.9)
    ratio = found.sum_s(answer.seconds) / found.measured_s
    assert np.abs(ratio - 1).mean() < 0.04
    inside = (found.sum_s(answer.low_s) <= found.measured_s) & (
        found.measured_s <= found.sum_s(answer.high_s))
    assert inside.mean() > 0.85


def test_equal_trainings_give_equal_bundles(run) -> None:
    record, _, training, folder = run
    again = train(training, folder / "again", lambda _: None)
    assert again.digest == record.digest


def test_sources_are_recorded_with_licence_rows_and_digest(run) -> None:
    sources = open_bundle(run[0].bundle).manifest.sources
    assert {(one.name, one.licence, one.rows) for one in sources} == {
        ("vidur", "MIT", 240), ("estimate-train-time", "MIT", 480)}


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(InputError, match="no family 'gem'"):
        models_of("gem")


def test_a_folder_without_measurements_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="no measured kernels"):
        train(Training(tmp_path, "gemm", sources=("kernels-long",)), tmp_path / "runs",
              lambda _: None)


def test_an_unknown_source_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="no source kernels"):
        train(Training(tmp_path, "gemm", sources=("kernels",)), tmp_path / "runs", lambda _: None)
