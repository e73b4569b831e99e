"""Exit codes and what is said when something goes wrong."""

from __future__ import annotations

import click
import pytest

from predictor.cli import main
from predictor.spec.errors import NoFeasibleStrategyError
from predictor.version import __version__


@pytest.fixture
def verb(monkeypatch):
    """Make ``predict-time step`` raise an error."""

    def replace(error: BaseException) -> None:
        @click.command("step")
        def command() -> None:
            raise error

        monkeypatch.setattr(main.root, "get_command", lambda _, name: command)

    return replace


def test_version_without_a_predictor(predict_time, monkeypatch, tmp_path):
    monkeypatch.setattr("predictor.catalog.data.model_folder", lambda: tmp_path / "none")
    result = predict_time("--version")
    assert (result.code, result.out) == (0, f"predict-time {__version__}\n")


def test_help_lists_every_verb(predict_time):
    result = predict_time("--help")
    assert result.code == 0
    for name in main.VERBS:
        assert f"\n  {name} " in result.out


def test_no_verb_shows_the_help_as_a_mistake(predict_time):
    result = predict_time()
    assert (result.code, result.out) == (2, "")
    assert "Usage: predict-time" in result.err


@pytest.mark.parametrize(("error", "code"), [
    (NoFeasibleStrategyError("nothing fits"), 3),
    (KeyboardInterrupt(), 130),
    (ZeroDivisionError("x"), 1),
    (click.ClickException("no"), 1),
])
def test_errors_have_exit_codes_and_one_line(predict_time, verb, error, code):
    verb(error)
    result = predict_time("step")
    assert result.code == code
    assert len(result.err.strip().splitlines()) == 1  # ^C is followed by a line break


def test_debug_shows_the_traceback_of_a_failure(predict_time, verb):
    verb(ZeroDivisionError("x"))
    assert "Traceback" in predict_time("--debug", "step").err


def test_main_exits():
    with pytest.raises(SystemExit) as caught:
        main.main(["--version"])
    assert caught.value.code == 0
