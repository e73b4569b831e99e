"""What the front page shows is what the command prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from predictor.cli.main import root

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DEMO = (ROOT / "scripts" / "demo").read_text(encoding="utf-8")
COMMANDS = re.findall(r"predict-time (step (?:\\\n|[^\n`])*)", README)


def printed(command: str) -> str:
    words = shlex.split(command.replace("\\\n", " "))
    return CliRunner().invoke(root, [word for word in words if word != "$@"]).output


def test_nothing_is_left_to_fill_in():
    assert not re.search(r"\b[A-Z]+_(?:OUTPUT|TABLE)\b|\bTODO\b", README)


@pytest.mark.parametrize("command", [
    re.search(r"predict-time (step.*)", DEMO, re.DOTALL)[1],
    next(command for command in COMMANDS if "gpt-3-175b" in command)])
def test_shown_predictions_are_todays(command):
    step = re.search(r"step time .*", printed(command))
    assert step is not None
    assert step[0] in README


def test_the_python_example_runs():
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    exec(compile(code, "README.md", "exec"), {})


def test_every_page_it_links_to_exists():
    for target in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (ROOT / target).exists(), target
