"""From JSON or YAML text to validated records: strict types, unknown keys refused, all problems.

Everything goes through pydantic's strict JSON mode, which takes lists for tuples and objects for
records but never a string for a number.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

import yaml
from pydantic import TypeAdapter, ValidationError

from predictor.spec.errors import InputError, Problem
from predictor.spec.yaml_loader import Loader

Record = TypeVar("Record")


@cache
def _adapter(record: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(record)


def parse_json(record: type[Record], text: str) -> Record:
    """Return the ``record`` that the JSON ``text`` describes.

    Raises
    ------
    InputError
        With one problem for each wrong type, unknown or missing key and broken rule.
    """
    try:
        parsed: Record = _adapter(cast("Hashable", record)).validate_json(text)
    except ValidationError as error:
        raise InputError(_problems(error)) from None
    return parsed


def parse_mapping(record: type[Record], mapping: object) -> Record:
    """Return the ``record`` described by a mapping of plain JSON values."""
    try:
        text = json.dumps(mapping, allow_nan=False, ensure_ascii=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError.of("plain-json", f"the input is not plain JSON: {error}",
                            "use finite numbers, strings, booleans, lists and objects") from None
    return parse_json(record, text)


def load_yaml(text: str) -> object:
    """Return the plain values in YAML (or JSON) ``text``.

    Raises
    ------
    InputError
        When the text is not YAML, with the line and column.
    """
    try:
        return yaml.load(text, Loader=Loader)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        where = " ".join(str(error).split())
        raise InputError.of(
            "yaml", f"cannot read the text: {where}", "correct the syntax") from None


def _problems(error: ValidationError) -> list[Problem]:
    problems: list[Problem] = []
    for detail in error.errors(include_url=False):
        where = ".".join(str(part) for part in detail["loc"])
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, InputError):
            problems += [_nest(where, problem) for problem in cause.problems]
        else:
            problems.append(_problem(detail["type"], where, detail))
    return problems


def _nest(where: str, problem: Problem) -> Problem:
    path = ".".join(part for part in (where, problem.where) if part)
    return Problem(problem.rule, problem.message, problem.remedy, path)


def _problem(kind: str, where: str, detail: Any) -> Problem:
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        return Problem("unknown-key", f"unknown key {where.rsplit('.', 1)[-1]!r}",
                       "remove it or correct its spelling", where)
    if kind in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return Problem("missing-key", "a value is required", "give it", where)
    shown = repr(detail.get("input"))
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return Problem("wrong-type", f"{detail['msg']}, not {shown}", "correct the value", where)
