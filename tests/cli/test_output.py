"""Lines for people and files that are whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from predictor.cli.output import LONGEST_LINE, check_outputs, one_line, write_file
from predictor.cli.step_text import plain, seconds
from predictor.spec.errors import InputError


def test_one_line_has_no_line_breaks_or_control_characters():
    assert one_line("a\nb\tc\x1b[31m") == "a b c\\x1b[31m"


def test_one_line_is_not_endless():
    assert len(one_line("x" * 10_000)) == LONGEST_LINE


def test_write_file_replaces_what_was_there(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    write_file(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_write_file_leaves_nothing_behind_when_it_fails(tmp_path):
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(InputError, match="cannot write"):
        write_file(target, "text")
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(("value", "text"), [
    (12.3456, "12.35 s"), (0.0123, "12.3 ms"), (4.2e-6, "4.2 us"), (0.0, "0 us")])
def test_seconds(value, text):
    assert seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [
    (True, "true"), (None, "-"), ((1, 2), "[1, 2]"), ("x", "x")])
def test_plain(value, text):
    assert plain(value) == text


def test_a_link_stays_a_link_and_a_file_keeps_its_mode(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    write_file(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o600


def test_a_device_is_written_to_not_replaced():
    write_file(Path("/dev/null"), "gone")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(("output", "trace", "rule"), [
    ("-", None, "output-file"), ("nowhere/a.json", None, "output-folder"),
    ("a.json", "a.json", "output-in-use"), ("job.yaml", None, "output-in-use")])
def test_outputs_are_checked_before_the_work(output, trace, rule, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("{}")
    with pytest.raises(InputError) as caught:
        check_outputs({"--output": Path(output), "--trace": trace and Path(trace)}, ["job.yaml"])
    assert [problem.rule for problem in caught.value.problems] == [rule]
