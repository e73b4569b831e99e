"""From a name or a file to a record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from predictor.catalog.files import exists, is_file_name, read_mapping
from predictor.catalog.merge import based, cluster_mapping, preset, with_nodes
from predictor.catalog.names import find, written
from predictor.spec.cluster import Cluster, Gpu, LinkLevel, NodeGroup
from predictor.spec.errors import InputError, Problem
from predictor.spec.model import ModelConfig

Record = TypeVar("Record", Gpu, Cluster, ModelConfig)


def load_gpu(name_or_path: str | Path) -> Gpu:
    """Return the GPU called so, or the one that a file describes.

    Raises
    ------
    InputError
        When there is no such preset, or the file is unreadable or wrong.
    """
    if _is_file("gpus", name_or_path):
        return _from_file(Gpu, Path(name_or_path), lambda fields: based("gpus", fields))
    return Gpu(**preset("gpus", str(name_or_path)))


def load_cluster(name_or_path: str | Path, nodes: int | None = None) -> Cluster:
    """Return the cluster called so, or the one that a file describes, with ``nodes`` nodes.

    Without ``nodes``, the preset's or the file's own number.

    Raises
    ------
    InputError
        When there is no such preset, the file is unreadable or wrong, or ``nodes`` is given for a
        cluster of several groups.
    """
    if _is_file("clusters", name_or_path):
        return _from_file(Cluster, Path(name_or_path), lambda fields: _sized(
            cluster_mapping(fields), nodes))
    return _cluster(_sized(preset("clusters", str(name_or_path)), nodes))


def load_model(name_or_path: str | Path) -> ModelConfig:
    """Return the model called so, or the one that a file describes.

    Raises
    ------
    InputError
        When there is no such preset, or the file is unreadable or wrong.
    """
    if _is_file("models", name_or_path):
        return _from_file(ModelConfig, Path(name_or_path), lambda fields: based("models", fields))
    return ModelConfig(**preset("models", str(name_or_path)))


def _is_file(kind: str, name: str | Path) -> bool:
    """A path is a file; a preset's name is one only when it reads like a path."""
    if isinstance(name, Path):
        return True
    if is_file_name(name):
        return not written(kind, name)  # H200-NVL/PCIe is a GPU
    return find(kind, name) is None and exists(name)


def _sized(fields: dict[str, Any], nodes: int | None) -> dict[str, Any]:
    return fields if nodes is None else with_nodes(fields, nodes)


def _cluster(fields: dict[str, Any]) -> Cluster:
    """Build a preset's cluster without pydantic, whose schemas take longer than all else here."""
    groups = tuple(NodeGroup(**(group | {"gpu": Gpu(**group["gpu"])}))
                   for group in fields["groups"])
    levels = tuple(LinkLevel(**level) for level in fields["levels"])
    return Cluster(**(fields | {"groups": groups, "levels": levels}))


def _from_file(record: type[Record], path: Path,
               complete: Callable[[dict[str, Any]], dict[str, Any]]) -> Record:
    from predictor.spec.parse import parse_mapping  # pydantic: only for a user's own file

    given = read_mapping(path)
    try:
        fields = complete(given)
        if "name" not in given:
            fields["name"] = path.stem
        if record is not ModelConfig and "source" not in given:
            fields["source"] = _source(path, given)
        return parse_mapping(record, fields)
    except InputError as error:
        raise InputError(Problem(problem.rule, problem.message, problem.remedy,
                                 f"{path.name}: {problem.where}".rstrip(": "))
                         for problem in error.problems) from None


def _source(path: Path, given: dict[str, Any]) -> str:
    return f"{path.name}, from {given['base']}" if "base" in given else path.name
