"""Lines for people and files that are whole."""

from __future__ import annotations

import pytest

from predictor.cli.output import LONGEST_LINE, one_line, write_file
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
