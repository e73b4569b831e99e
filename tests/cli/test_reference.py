"""The page in docs/ is the one that the command makes."""

from __future__ import annotations

from pathlib import Path

from predictor.cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "run: python -m predictor.cli.reference docs/cli.md")
