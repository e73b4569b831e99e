"""The cells of a measured table, as sources write them: ``word(qualifier, key=value)``.

``selective(modules=layernorm,moe_act)``, ``1 (dist-opt)``, ``fp8-cs`` and
``full(block,21 layers)`` all follow one small grammar: a leading word, then qualifiers in
parentheses, separated by commas or semicolons, some of them ``key=value``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

_LEAD = re.compile(r"^\s*([^(;]*?)\s*(?:\((.*)\))?\s*$", re.DOTALL)
_NUMBER = re.compile(r"^\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)")
_BLANK = frozenset({"", "nan", "n/a", "na", "null", "unknown", "-", "not stated"})
"""``none`` is not among them: a recipe without recomputation says so."""
_TRUE = frozenset({"1", "1.0", "yes", "y", "true", "on"})
_FALSE = frozenset({"0", "0.0", "no", "n", "false", "off", "none", "disabled"})


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell taken apart; everything is lower case."""

    word: str
    """What stands before the parentheses."""
    qualifiers: tuple[str, ...]
    """What stands inside them, ``key=value`` pairs excepted."""
    options: tuple[tuple[str, str], ...]

    def option(self, key: str) -> str | None:
        """Return the value of ``key=value`` inside the parentheses."""
        return dict(self.options).get(key)


@lru_cache(maxsize=65536)
def parse_cell(text: str) -> Cell:
    """Take a cell apart; text without parentheses is all word."""
    match = _LEAD.match(text.lower())
    word, inside = (match.group(1), match.group(2) or "") if match else (text.lower(), "")
    qualifiers: list[str] = []
    options: list[tuple[str, str]] = []
    for piece in (piece.strip() for piece in re.split(r"[,;]", inside)):
        key, equals, value = piece.partition("=")
        if equals:
            options.append((key.strip(), value.strip()))
        elif piece and options and not qualifiers:
            # A list that continues its key: modules=layernorm,moe_act.
            options[-1] = (options[-1][0], f"{options[-1][1]},{piece}")
        elif piece:
            qualifiers.append(piece)
    return Cell(word.strip(), tuple(qualifiers), tuple(options))


def is_blank(value: object) -> bool:
    """Return whether a cell says nothing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return str(value).strip().lower() in _BLANK


def text_of(value: object) -> str:
    """Return the cell as text, empty when blank."""
    return "" if is_blank(value) else str(value).strip()


def number_of(value: object) -> float | None:
    """Return the leading number of a cell, None when there is none."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return None if math.isnan(value) else float(value)
    match = _NUMBER.match(str(value))
    return float(match.group(1)) if match else None


def integer_of(value: object) -> int | None:
    """Return the leading number of a cell as an integer, None when there is none."""
    number = number_of(value)
    return None if number is None or not math.isfinite(number) else int(number)


def flag_of(value: object) -> bool | None:
    """Return what a yes/no cell says, by its first word; None when it says neither."""
    if is_blank(value):
        return None
    word = re.split(r"[\s(/,;]", str(value).strip().lower(), maxsplit=1)[0]
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    return None
