"""Run folders: all or nothing, read back as written, refused when wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from runs import DATA, DIGEST, PNG, STARTED, STARTED_MS, make_bundle, make_run, scores

from predictor.spec.errors import InputError
from predictor.training.record import mark_logged, now, pending, read_run, write_run


@pytest.fixture
def arguments(tmp_path):
    """What write_run takes, right."""
    return {
        "started": STARTED, "seconds": 1.0, "git_commit": "c", "command": "x", "params": {},
        "metrics": {"gemm": {"all": scores(3.0)}}, "datasets": [DATA],
        "bundle": make_bundle(tmp_path / "b"), "digest": DIGEST, "plots": {}, "worst_rows": "id\n"}


def rules(call, *arguments, **named):
    with pytest.raises(InputError) as refused:
        call(*arguments, **named)
    return [problem.rule for problem in refused.value.problems]


def test_a_run_is_read_as_it_was_written(tmp_path):
    written = make_run(tmp_path / "runs")
    read = read_run(written.folder)
    assert read == written
    assert read.run_id == "run-1" and read.logged is None and read.started_ms == STARTED_MS
    assert read.metrics["gemm"]["bf16"].mape == 4.0
    assert read.datasets == (DATA,)
    assert [plot.read_bytes() for plot in read.plots] == [PNG]
    assert read.worst_rows.read_text(encoding="utf-8") == "id,error\na,0.5\n"
    assert (read.bundle / "gemm.npz").read_bytes() == bytes(range(256))
    assert sorted(path.name for path in written.folder.iterdir()) == [
        "bundle", "plots", "run.json", "worst_rows.csv"]


def test_the_bundle_that_was_copied_is_the_runs_own(tmp_path):
    record = make_run(tmp_path / "runs")
    (tmp_path / "bundle-to-copy" / "gemm.npz").write_bytes(b"changed later")
    assert (record.bundle / "gemm.npz").read_bytes() == bytes(range(256))


@pytest.mark.parametrize(("change", "rule"), [
    ({"params": {"depth": float("nan")}}, "run-values"),
    ({"params": {"depth": object()}}, "run-values"),
    ({"params": {"depth": [1]}}, "wrong-type"),
    ({"metrics": {"gemm": {"all": scores(float("inf"))}}}, "run-values"),
    ({"metrics": {"gemm": {"all": replace(scores(1.0), rows=1.5)}}}, "wrong-type"),
    ({"started": "2026-01-31T12:00:00"}, "run-start"),
    ({"started": "yesterday"}, "run-start"),
    ({"datasets": [replace(DATA, sha256="abc")]}, "data-digest"),
    ({"plots": {"../gemm.png": PNG}}, "plot-name"),
    ({"plots": {"gemm.svg": PNG}}, "plot-name"),
])
def test_what_cannot_be_recorded_is_refused_and_nothing_is_left(tmp_path, arguments, change, rule):
    runs = tmp_path / "runs"
    assert rule in rules(write_run, runs / "r", **{**arguments, **change})
    assert not runs.exists()


def test_all_problems_are_told_at_once(tmp_path, arguments):
    wrong = {**arguments, "bundle": tmp_path / "none", "plots": {"a.svg": b"", "b": b""}}
    assert rules(write_run, tmp_path / "r", **wrong) == ["run-bundle", "plot-name", "plot-name"]
    wrong = {**arguments, "started": "", "datasets": [replace(DATA, sha256="")] * 2}
    assert rules(write_run, tmp_path / "r.s", **wrong) == ["run-start", "data-digest",
                                                           "data-digest"]


def test_a_run_is_never_overwritten(tmp_path, arguments):
    first = make_run(tmp_path / "runs")
    assert rules(write_run, first.folder, **arguments) == ["run-exists"]
    assert read_run(first.folder) == first


def test_a_failure_in_the_middle_leaves_nothing(tmp_path, arguments):
    runs = tmp_path / "runs"
    with pytest.raises(TypeError):
        write_run(runs / "r", **{**arguments, "plots": {"a.png": "text"}})
    assert list(runs.iterdir()) == []
    unreadable = arguments["bundle"] / "dangling"
    unreadable.symlink_to(tmp_path / "nowhere")
    assert rules(write_run, runs / "r", **arguments) == ["writable-run"]
    assert list(runs.iterdir()) == []


def test_where_nothing_can_be_written_it_says_so(tmp_path, arguments):
    (tmp_path / "file").touch()
    assert rules(write_run, tmp_path / "file" / "r", **arguments) == ["writable-run"]


@pytest.mark.parametrize(("key", "value", "rule"), [
    ("more", 1, "unknown-key"), ("seconds", "1", "wrong-type"), ("format_version", 2, "run-format"),
    ("run_id", "../x", "run-id"), ("digest", None, "wrong-type"),
])
def test_a_changed_run_file_is_refused_with_its_path(tmp_path, key, value, rule):
    record = make_run(tmp_path / "runs")
    file = record.folder / "run.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**document, key: value}), encoding="utf-8")
    with pytest.raises(InputError, match=r"run\.json|is no run id") as refused:
        read_run(record.folder)
    assert [problem.rule for problem in refused.value.problems] == [rule]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]"])
def test_what_is_no_run_file_is_refused(tmp_path, content):
    record = make_run(tmp_path / "runs")
    (record.folder / "run.json").write_bytes(content)
    with pytest.raises(InputError, match=r"run\.json"):
        read_run(record.folder)


def test_a_run_without_bundle_or_rows_is_refused(tmp_path):
    record = make_run(tmp_path / "runs")
    record.worst_rows.unlink()
    for path in record.bundle.iterdir():
        path.unlink()
    record.bundle.rmdir()
    assert rules(read_run, record.folder) == ["run-folder", "run-folder"]
    assert rules(read_run, tmp_path / "none") == ["run-file"]


def test_pending_runs_come_oldest_first_until_they_are_logged(tmp_path):
    runs = tmp_path / "runs"
    late = make_run(runs, "a", started="2026-02-01T00:00:00+00:00")
    # The same clock time two hours further east is earlier.
    east = make_run(runs, "b", started="2026-02-01T00:00:00+02:00")
    (runs / ".c.x").mkdir()
    (runs / ".c.x" / "run.json").write_text("{", encoding="utf-8")
    assert pending(runs) == [east, late]
    marked = mark_logged(east, "f00")
    assert marked.logged == "f00" and read_run(east.folder) == marked
    assert pending(runs) == [late]
    assert rules(pending, tmp_path / "none") == ["runs-folder"]


def test_a_mark_that_cannot_be_written_leaves_the_file(tmp_path):
    record = make_run(tmp_path / "runs")
    gone = replace(record, folder=tmp_path / "gone")
    assert rules(mark_logged, gone, "f00") == ["writable-run"]
    assert read_run(record.folder).logged is None


def test_now_is_a_moment_that_a_run_may_start(tmp_path, arguments):
    assert write_run(tmp_path / "r", **{**arguments, "started": now()}).started_ms > STARTED_MS


def test_records_do_not_load_mlflow():
    script = ("import sys, predictor.training.record, predictor.training.tracking, "
              "predictor.training.registry\n"
              "sys.exit(any(name in sys.modules for name in ('mlflow', 'pandas', 'sqlalchemy')))")
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
