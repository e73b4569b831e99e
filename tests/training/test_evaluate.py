"""Scoring a whole table."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from predictor.datasets.row import may_be_read
from predictor.spec.errors import InputError
from predictor.training.evaluate import evaluate

KEYS = {
    "schema_version", "predict_time_version", "predictor", "calibration", "rows", "predicted",
    "refused", "mape", "mape_group_mean", "median_ape", "bias", "max_ape", "interval_coverage",
    "interval_half_width", "by_group", "in_sample_rows", "ranking", "seconds", "rows_per_second",
    "n_untimed",
}
PER_ROW = ["id", "measured", "predicted", "low", "high", "provenance", "refused", "verdict"]


def returning(times, verdicts=None):
    """A predictor that answers with given seconds, in the order of the readable rows."""
    def predict(jobs, strategies):
        rows = len(jobs)
        assert rows == len(strategies)
        seconds = np.array(times[:rows], dtype=float)
        return SimpleNamespace(
            step_time_s=seconds, low_s=seconds * 0.9, high_s=seconds * 1.1,
            provenance=["learned"] * rows,
            breakdown={"compute_s": seconds}, verdict=(verdicts or ["fits"] * rows)[:rows],
            refused=(), assumed=({"schedule": {}},) * rows)
    return predict


@pytest.fixture
def readable(steps):
    return steps.iloc[:4]


def test_document_has_the_promised_keys_and_is_json(steps):
    document = evaluate(steps).document()
    assert set(document) >= KEYS
    assert {"groups", "kendall_tau_mean", "top1_regret_mean", "top1_regret_max"} <= set(
        document["ranking"])
    json.dumps(document, allow_nan=False)


def test_rows_are_counted(steps):
    found = evaluate(steps.assign(step_time_s=[1.0, None, 1.5, None, 1.1]))
    assert (found.rows, found.predicted, found.n_untimed) == (5, 4, 1)
    assert [entry["id"] for entry in found.refused] == ["e"]
    assert found.refused[0]["why"]
    assert sum(found.refused_by_kind.values()) == 1


def test_scores_by_hand(readable):
    found = evaluate(readable, predict=returning([1.1, 1.2, 1.2, 9.0]))
    document = found.document()
    assert document["mape"] == pytest.approx((10 + 0 + 20) / 3)
    assert document["bias"] == pytest.approx(100 * ((1.1 + 1.0 + 0.8) / 3 - 1))
    assert document["interval_coverage"] == pytest.approx(200 / 3)
    assert document["interval_half_width"] == pytest.approx(10)
    assert found.per_row["provenance"].tolist() == ["learned"] * 4


def test_groups_weigh_the_same_in_their_mean(readable):
    rows = readable.assign(family=["f", "f", "h", "h"])
    found = evaluate(rows, predict=returning([1.1, 1.2, 1.2, 9.0]))
    assert found.by_group["f"].mape == pytest.approx(5)
    assert found.by_group["h"].mape == pytest.approx(20)
    assert found.mape_group_mean == pytest.approx(12.5)
    assert set(evaluate(rows, group_by="tier").by_group) == {"A", "B"}


def test_where_selects_before_anything_is_read(steps):
    found = evaluate(steps, where="tier in {A,B} and workload == pretrain*")
    assert (found.rows, len(found.refused)) == (4, 0)
    assert evaluate(steps, where="tier == none-such").document()["mape"] is None


def test_ids_are_row_numbers_of_the_whole_table_where_it_has_none(steps):
    found = evaluate(steps.drop(columns="id"), where="tier == B")
    assert found.per_row["id"].tolist() == ["2"]


def test_a_measured_out_of_memory_is_right_when_predicted_not_to_fit(readable):
    verdicts = ["fits", "fits", "does-not-fit", "does-not-fit"]
    found = evaluate(readable, predict=returning([1, 2, 3, 4], verdicts))
    assert found.out_of_memory == {
        "rows": 1, "predicted_not_to_fit": 1, "ran_but_predicted_not_to_fit": 1}
    assert found.n_untimed == 0


def test_ranking_is_by_time_per_sample(readable):
    halved = readable.assign(global_batch=[64, 32, 64, 64])
    # Per sample, b measures 1.2 / 32: slower than a and c. Its step time says otherwise.
    found = evaluate(halved, predict=returning([1.0, 0.6, 1.1, 9.0]))
    assert found.ranking.groups == 1
    # Pairs (a,b), (a,c), (b,c): predicted per sample a 1.0, b 1.2, c 1.1 (over 64).
    assert found.ranking.kendall_tau_mean == pytest.approx(1)


def test_choosing_an_out_of_memory_run_is_full_regret(readable):
    assert evaluate(readable, predict=returning([2, 3, 4, 1])).ranking.top1_regret_mean == 100
    chosen = evaluate(readable, predict=returning([2, 1, 4, 3])).ranking
    assert chosen.top1_regret_max == pytest.approx(20)


@pytest.mark.parametrize("change", [
    {"rank_group": "xrel-g"}, {"framework_version": ["1", "2", "1", "1"]}])
def test_groups_that_mix_releases_are_scored_apart(readable, change):
    found = evaluate(readable.assign(**change))
    assert (found.ranking.groups, found.ranking_apart.groups) == (0, 1)


def test_workloads_are_not_mixed(readable):
    found = evaluate(readable.assign(workload=["pretrain", "pretrain", "lora", "lora"]))
    assert found.ranking.groups == 0


def test_repeats_of_a_strategy_are_one(readable):
    repeated = pd.concat([readable.iloc[[0, 0, 0]].assign(step_time_s=[1.0, 2.0, 3.0]),
                          readable.iloc[[1]]])
    assert evaluate(repeated).ranking.groups == 0


def test_rows_that_were_learned_from_are_counted(steps):
    assert evaluate(steps, learned_from={"a", "c", "zz"}).in_sample_rows == 2


def test_operations_were_learned_by_source():
    rows = pd.DataFrame([{"gpu": "a100-sxm-80gb", "dtype": "bf16", "op": "gemm", "pass": "fwd",
                          "m": 4096, "n": 4096, "k": 4096, "latency_us": 700.0, "source": source}
                         for source in ("ours", "theirs", "ours", None)])
    for names, count in (({"ours"}, 2), ({"0", "1"}, 0)):
        found = evaluate(rows, quantity="kernel_time", learned_from=names)
        assert (found.in_sample_rows, found.predicted) == (count, 4)
    assert evaluate(rows.drop(columns="source"), quantity="kernel_time",
                    learned_from={"", "ours"}).in_sample_rows == 0


def test_per_row_columns_and_breakdown_that_sums_up(steps):
    rows = evaluate(steps).per_row
    assert list(rows.columns[:8]) == PER_ROW
    parts = rows[rows.columns[8:]].sum(axis=1)
    kept = rows["refused"] == ""
    assert kept.tolist() == [True] * 4 + [False]
    assert parts[kept].to_numpy() == pytest.approx(rows["predicted"][kept].to_numpy())
    assert rows["predicted"][~kept].isna().all()


def blanked(frame):
    """Blank what may not be read; what was measured must stay for the scores to exist."""
    hidden = [name for name in frame.columns if not may_be_read(name)]
    return frame.assign(**dict.fromkeys(hidden))


def permuted(frame):
    hidden = [name for name in frame.columns if not may_be_read(name)]
    return frame.assign(**{name: frame[name].to_numpy()[::-1] for name in hidden})


@pytest.mark.parametrize("change", [blanked, permuted])
def test_a_prediction_reads_no_outcome(steps, change):
    changed = change(steps)
    assert "step_time_s" in changed
    before, after = evaluate(steps).per_row, evaluate(changed).per_row
    columns = ["predicted", "verdict", "refused", *before.columns[8:]]
    pd.testing.assert_frame_equal(before[columns], after[columns])


@pytest.mark.parametrize("change", [blanked, permuted])
def test_no_published_prediction_reads_an_outcome(reference, change):
    table = pd.read_csv(reference / "steps" / "published_steps.csv", low_memory=False)
    before, after = evaluate(table).per_row, evaluate(change(table)).per_row
    columns = ["predicted", "verdict", "refused"]
    pd.testing.assert_frame_equal(before[columns], after[columns])


def test_published_rows_are_hardly_refused_and_fast(reference):
    found = evaluate(reference / "steps" / "published_steps.csv", where="tier in {A,B}")
    assert len(found.refused) < 0.02 * found.rows
    assert len(found.refused_by_kind) <= 5
    assert found.errors.rows > 1600
    assert found.rows / found.seconds > 300  # 1,000 on a quiet machine


def test_progress_hears_of_every_row(steps):
    seen = []
    evaluate(steps, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (5, 5)


@pytest.mark.parametrize(("options", "text"), [
    ({"quantity": "mood"}, "quantity"), ({"group_by": "nope"}, "nope"),
    ({"where": "nope == 1"}, "nope"), ({"where": "tier =="}, "character"),
])
def test_wrong_options_are_told(steps, options, text):
    with pytest.raises(InputError, match=text):
        evaluate(steps, **options)


def test_a_table_of_something_else_is_told(steps):
    with pytest.raises(InputError, match="step_time_s"):
        evaluate(steps.drop(columns="step_time_s"))


def test_an_empty_table_has_no_scores(steps):
    document = evaluate(steps.iloc[:0]).document()
    assert (document["rows"], document["mape"], document["by_group"]) == (0, None, {})
