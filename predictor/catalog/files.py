"""Reads a user's JSON or YAML file: bounded, plain values only, never a traceback."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import yaml

from predictor.catalog.names import shown
from predictor.spec.errors import InputError

LARGEST_FILE_BYTES = 1_000_000
SUFFIXES = (".json", ".yaml", ".yml")
# YAML 1.1 wants a dot and a signed exponent, so PyYAML reads 1.2e9 and 1e9 as strings.
_SCIENTIFIC = re.compile(r"^[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+$")


class _Loader(yaml.SafeLoader):
    """Safe YAML with every float that JSON and Python know, without aliases or repeated keys.

    Nested aliases let a small text describe more values than fit in memory.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not supported")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            raise yaml.YAMLError(f"line {node.start_mark.line + 1}: a key is given twice")
        return mapping


def _scientific(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(loader.construct_scalar(node))


_Loader.add_implicit_resolver("!scientific", _SCIENTIFIC, list("-+.0123456789"))
_Loader.add_constructor("!scientific", _scientific)


def is_file_name(name: str) -> bool:
    """Return whether ``name`` reads like a path rather than like the name of a preset."""
    return "/" in name or "\\" in name or name.lower().endswith(SUFFIXES)


def exists(name: str) -> bool:
    """Return whether ``name`` is a file here; a name no file can have is not."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping that the JSON or YAML file at ``path`` holds.

    Raises
    ------
    InputError
        When the file is missing, not a regular file, too large, not text, not JSON or YAML, or
        holds something else than a mapping with text keys.
    """
    text = _read_text(path)
    value = _load_json(path, text) if path.suffix.lower() == ".json" else _load_yaml(path, text)
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise _unreadable(path, "it does not hold a mapping of names to values",
                          "write one `name: value` per line")
    return value


def _read_text(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _unreadable(path, "it is not a regular file", "give a file")
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise _unreadable(path, reason, "check the path") from None
    if len(content) > LARGEST_FILE_BYTES:
        raise _unreadable(path, f"it is larger than {LARGEST_FILE_BYTES} bytes",
                          "give a smaller file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _unreadable(path, "it is not UTF-8 text", "give a JSON or YAML file") from None


def _load_json(path: Path, text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, str(error), "correct the JSON") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key is given twice")
    return mapping


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _load_yaml(path: Path, text: str) -> object:
    try:
        value: object = yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _unreadable(path, " ".join(str(error).split()), "correct the YAML") from None
    return value


def _unreadable(path: Path, reason: str, remedy: str) -> InputError:
    return InputError.of("readable-file", f"cannot read {shown(str(path))}: {reason}", remedy)
