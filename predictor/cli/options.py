"""Command line options made from the fields of the records, so that the two never disagree.

An option converts text as far as its field's type allows and passes on what it cannot convert:
the record's own checks then report every wrong value at once, whatever way it came in.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import click

from predictor.spec.errors import InputError
from predictor.spec.job import TrainingJob
from predictor.spec.parse import load_yaml
from predictor.spec.strategy import Strategy

Function = TypeVar("Function", bound=Callable[..., Any])

STRATEGY_FIELDS = tuple(field.name for field in fields(Strategy))
JOB_FIELDS = tuple(field.name for field in fields(TrainingJob)
                   if field.name not in ("model", "cluster"))


def job_options(function: Function) -> Function:
    """Add --model, --cluster, --nodes and one option for each field of job and strategy.

    They arrive as keyword arguments under the fields' names; None means "not given".
    """
    for record, names in reversed([(TrainingJob, JOB_FIELDS), (Strategy, STRATEGY_FIELDS)]):
        for option in reversed(list(_field_options(record, names))):
            function = option(function)
    for name, kind, text in (
        ("--nodes", FieldType("INTEGER", _integer), "Nodes of the cluster."),
        ("--cluster", FieldType("NAME|FILE", str), "Cluster: a preset's name or a YAML file."),
        ("--model", FieldType("NAME|FILE", str), "Neural network: a preset's name or a file."),
    ):
        function = click.option(name, type=kind, default=None, help=text)(function)
    return function


def _field_options(
    record: type[Any], names: tuple[str, ...]
) -> Iterator[Callable[[Any], Any]]:
    hints, docs = get_type_hints(record), field_docs(record)
    for field in fields(record):
        if field.name not in names:
            continue
        flag = "--" + field.name.replace("_", "-")
        plain = _without_none(hints[field.name])
        text = docs.get(field.name, "") + _default_text(field)
        if plain is bool:
            yield click.option(f"{flag}/--no-{flag[2:]}", default=None, help=text)
        else:
            yield click.option(flag, type=_field_type(plain), default=None, help=text)


def _default_text(field: Field[Any]) -> str:
    if field.default in (MISSING, None, ()) or field.default is False:
        return ""
    return f" [default: {field.default}]"


class FieldType(click.ParamType[Any]):
    """Converts what it can and lets the record's checks judge the rest."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self.parse = parse

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return what stands behind the option in the help."""
        return self.name

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Return the converted value, or the text itself when it does not convert."""
        try:
            return self.parse(value)
        except (ValueError, InputError):
            return value


def _field_type(hint: Any) -> FieldType:
    if hint is int:
        return FieldType("INTEGER", _integer)
    if hint is float:
        return FieldType("FLOAT", float)
    if get_origin(hint) is Literal:
        return FieldType("[" + "|".join(get_args(hint)) + "]", str)
    item = get_args(hint)[0]
    if item is int:
        return FieldType("N,N,...", lambda text: [_number(part) for part in text.split(",")])
    if get_origin(item) is Literal:
        return FieldType("[" + "|".join(get_args(item)) + "],...", lambda text: text.split(","))
    return FieldType("YAML", load_yaml)


def _integer(text: str) -> int:
    if len(text) > 40:
        raise ValueError("no size has that many digits")
    return int(text)


def _number(text: str) -> int | str:
    try:
        return _integer(text)
    except ValueError:
        return text


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        return next(part for part in get_args(hint) if part is not NoneType)
    return hint


def field_docs(record: type[Any]) -> dict[str, str]:
    """Return field -> the string that follows it in the source of ``record``, on one line.

    Empty when the source is not at hand; the help is then shorter, nothing else changes.
    """
    try:
        body = ast.parse(inspect.getsource(record)).body[0]
    except OSError:
        return {}
    assert isinstance(body, ast.ClassDef)
    docs: dict[str, str] = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            docs[statement.target.id] = _plain_text(str(following.value.value))
    return docs


def _plain_text(text: str) -> str:
    return " ".join(text.replace("``", "").split())
