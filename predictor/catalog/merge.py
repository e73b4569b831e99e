"""Turns a user's mapping and the preset that it starts from into one complete mapping."""

from __future__ import annotations

import difflib
from typing import Any

from predictor.catalog.data import NOTES
from predictor.catalog.names import did_you_mean, require, shown
from predictor.spec.errors import InputError, Problem

Mapping = dict[str, Any]
_GROUP_KEYS = ("gpu", "gpus_per_node", "nodes")


def preset(kind: str, name: str, where: str = "") -> Mapping:
    """Return the fields of the preset called ``name``, GPUs of clusters filled in.

    Raises
    ------
    InputError
        When there is no such preset.
    """
    own_name, entry = require(kind, name, where)
    fields = {key: value for key, value in entry.items() if key not in NOTES}
    if kind == "clusters":
        fields["groups"] = [dict(group, gpu=preset("gpus", group["gpu"]))
                            for group in entry["groups"]]
        fields["levels"] = [dict(level) for level in entry["levels"]]
    if kind == "models":
        del fields["source"]
    return {"name": own_name} | fields


def based(kind: str, mapping: Mapping) -> Mapping:
    """Return ``mapping`` over the preset that its ``base`` names; without one, as it is."""
    if "base" not in mapping:
        return dict(mapping)
    changes = {key: value for key, value in mapping.items() if key != "base"}
    return preset(kind, _text("base", mapping["base"]), "base") | changes


def gpu_mapping(value: object, where: str = "gpu") -> object:
    """Return a GPU's mapping from a name, or from a mapping that may have a base."""
    if isinstance(value, str):
        return preset("gpus", value, where)
    if isinstance(value, dict):
        return based("gpus", value)
    return value


def cluster_mapping(mapping: Mapping) -> Mapping:
    """Return a complete cluster mapping from a user's, which may be short.

    ``gpu``, ``gpus_per_node`` and ``nodes`` at the top speak of the only group; ``levels`` may be
    a mapping by level name that changes the base's levels.
    """
    short = {key: mapping[key] for key in _GROUP_KEYS if key in mapping}
    start = preset("clusters", _text("base", mapping["base"]), "base") if "base" in mapping else {}
    rest = {key: value for key, value in mapping.items() if key not in ("base", *_GROUP_KEYS)}
    if short:
        start |= _one_group(start, rest, short)
    merged = start | rest
    if isinstance(rest.get("levels"), dict):
        merged["levels"] = _levels(start.get("levels", []), rest["levels"])
    if isinstance(merged.get("groups"), list):
        merged["groups"] = [_group(index, group) for index, group in enumerate(merged["groups"])]
    return merged


def with_nodes(mapping: Mapping, nodes: int) -> Mapping:
    """Return the cluster ``mapping`` with ``nodes`` nodes in its only group."""
    groups = mapping.get("groups")
    if not isinstance(groups, list) or len(groups) != 1 or not isinstance(groups[0], dict):
        raise InputError.of("nodes-of-one-group", "a number of nodes was given for a cluster that "
                            "does not have exactly one group", "give nodes in its file", "nodes")
    return mapping | {"groups": [groups[0] | {"nodes": nodes}]}


def _text(where: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise InputError.of("base-is-a-name", f"base must be the name of a preset, not {value!r:.60}",
                        "name an entry of `predict-time catalog`", where)


def _one_group(start: Mapping, rest: Mapping, short: Mapping) -> Mapping:
    """Return the base's groups and levels with ``short`` applied to its only group."""
    if "groups" in rest:
        raise InputError.of("groups-once", "gpu, gpus_per_node and nodes at the top stand for one "
                            "group, and groups is given too", "give either", "groups")
    groups = start.get("groups", [{}])
    if len(groups) != 1:
        raise InputError.of("groups-once", "the base has several groups", "give groups", "groups")
    changed: Mapping = {"groups": [groups[0] | short]}
    if "levels" in start and isinstance(short.get("gpus_per_node"), int):
        old, new = groups[0]["gpus_per_node"], short["gpus_per_node"]
        changed["levels"] = [_resized(level, old, new) for level in start["levels"]]
    return changed


def _resized(level: Mapping, old: int, new: int) -> Mapping:
    """Let a level that spans the node, or adapters that the node shares, follow its size."""
    followed = {key: new for key in ("span", "gpus_sharing") if level[key] == old > 1}
    return level | followed


def _group(index: int, group: object) -> object:
    if not isinstance(group, dict) or "gpu" not in group:
        return group
    return group | {"gpu": gpu_mapping(group["gpu"], f"groups.{index}.gpu")}


def _levels(base: list[Mapping], changes: Mapping) -> list[object]:
    known = [level["name"] for level in base]
    problems = [_unknown_level(name, known) for name in changes if name not in known]
    problems += [Problem("wrong-type", f"a level is changed by a mapping, not {change!r:.60}",
                         "give fields of the level", f"levels.{name}")
                 for name, change in changes.items() if not isinstance(change, dict)]
    if problems:
        raise InputError(problems)
    return [level | changes.get(level["name"], {}) for level in base]


def _unknown_level(name: object, known: list[str]) -> Problem:
    if not known:
        return Problem("levels-by-name", "levels is a mapping but there is no base to change",
                       "give base, or levels as a list", "levels")
    close = difflib.get_close_matches(str(name)[:80], known, n=1)
    return Problem("known-level", f"the base has no level called {shown(str(name))}",
                   f"{did_you_mean('', close)}its levels are {', '.join(known)}", "levels")
