"""From what a user wrote (flags over a job file) to a job and a strategy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from predictor.catalog import load_cluster, load_model
from predictor.catalog.files import read_mapping
from predictor.catalog.merge import based, cluster_mapping, with_nodes
from predictor.cli.options import JOB_FIELDS, STRATEGY_FIELDS
from predictor.cli.output import one_line
from predictor.spec.cluster import Cluster
from predictor.spec.errors import InputError, Problem
from predictor.spec.job import TrainingJob
from predictor.spec.model import ModelConfig
from predictor.spec.parse import parse_mapping
from predictor.spec.strategy import Strategy

KEYS = frozenset({"model", "cluster", "nodes", *JOB_FIELDS, *STRATEGY_FIELDS})
Record = TypeVar("Record")


def read_settings(path: str) -> dict[str, Any]:
    """Return the keys and values of a job file.

    Raises
    ------
    InputError
        When the file cannot be read, is not a mapping, or holds unknown keys.
    """
    settings = read_mapping(Path(path))
    unknown = [key for key in settings if key not in KEYS]
    if unknown:
        raise InputError(_unknown_key(key) for key in unknown)
    return settings


def _unknown_key(key: str) -> Problem:
    from difflib import get_close_matches  # only needed when something is wrong

    near = get_close_matches(key, sorted(KEYS), n=1)
    remedy = f"did you mean {near[0]}?" if near else "remove it"
    return Problem("unknown-key", f"unknown key {key!r}", remedy, key)


def build(settings: Mapping[str, Any]) -> tuple[TrainingJob, Strategy]:
    """Return the job and strategy that ``settings`` describe.

    Raises
    ------
    InputError
        With everything wrong in model, cluster, job and strategy together.
    """
    problems: list[Problem] = []
    model = _collect(problems, lambda: _model(settings.get("model")))
    cluster = _collect(problems, lambda: _cluster(settings.get("cluster"), settings.get("nodes")))
    strategy = _fields(problems, Strategy, _without_none(settings, STRATEGY_FIELDS))
    fields = _without_none(settings, JOB_FIELDS)
    if model is not None and cluster is not None:
        fields |= {"model": asdict(model), "cluster": asdict(cluster)}
    job = _fields(problems, TrainingJob, fields, reported={"model", "cluster"})
    if problems or job is None or strategy is None:
        raise InputError(problems)
    return job, strategy


def _collect(problems: list[Problem], make: Callable[[], Record]) -> Record | None:
    """Return what ``make`` returns; on InputError record its problems and return None."""
    try:
        return make()
    except InputError as error:
        problems += error.problems
        return None


def _fields(
    problems: list[Problem], record: type[Record], values: dict[str, Any],
    reported: set[str] | None = None,
) -> Record | None:
    """Return the record; record its problems and return None when it has any.

    A record only checks itself once all types are right, so fields of the wrong type are taken
    out and the others tried again. Fields in ``reported`` have been complained about already.
    """
    done = set(reported or ())
    wrong = {""}
    while wrong:
        try:
            made = _plain(record, values)
        except InputError as error:
            new = [problem for problem in error.problems if problem not in problems
                   and not (problem.rule == "missing-key" and problem.where in done)]
            wrong = {problem.where.split(".")[0] for problem in new} & values.keys()
            problems += new
            done |= wrong
            values = {name: value for name, value in values.items() if name not in wrong}
        else:
            return made
    return None


def _plain(record: type[Record], values: dict[str, Any]) -> Record:
    """Parse ``values``; one that is not plain JSON is named, which the parser cannot do."""
    odd = [name for name, value in values.items() if not _is_plain(value)]
    if odd:
        raise InputError(Problem("plain-json", f"{name} is {one_line(repr(values[name]))[:60]}",
                                 "use finite numbers, text, true or false, lists and keys", name)
                         for name in odd)
    return parse_mapping(record, values)


def _is_plain(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _without_none(settings: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: settings[name] for name in names if settings.get(name) is not None}


def _model(value: object) -> ModelConfig:
    if isinstance(value, dict):
        return _nested("model", lambda: parse_mapping(ModelConfig, based("models", value)))
    return load_model(_name("model", value))


def _cluster(value: object, nodes: object) -> Cluster:
    if nodes is not None and not _is_count(nodes):
        raise InputError.of("positive", f"nodes must be a whole number above 0 and is "
                            f"{one_line(repr(nodes))[:60]}", "give the number of nodes", "nodes")
    assert nodes is None or isinstance(nodes, int)
    if not isinstance(value, dict):
        return load_cluster(_name("cluster", value), nodes)
    return _nested("cluster", lambda: _inline_cluster(value, nodes))


def _inline_cluster(value: dict[str, Any], nodes: int | None) -> Cluster:
    fields = cluster_mapping(value)
    return parse_mapping(Cluster, fields if nodes is None else with_nodes(fields, nodes))


def _nested(where: str, make: Callable[[], Record]) -> Record:
    """Run ``make``; what is wrong inside is wrong inside ``where``."""
    try:
        return make()
    except InputError as error:
        raise InputError(replace(problem, where=".".join(filter(None, (where, problem.where))))
                         for problem in error.problems) from None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 2**31


def _name(what: str, value: object) -> str:
    if isinstance(value, str) and value:
        return value
    if value is None:
        raise InputError.of("missing-key", "a value is required",
                            f"give --{what} NAME or FILE (predict-time catalog {what}s)", what)
    raise InputError.of("wrong-type", f"{what} must be a name, a file or keys, not "
                        f"{one_line(repr(value))[:60]}",
                        f"give the name of a {what}", what)
