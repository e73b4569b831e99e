"""Reads YAML as plain data: no objects, no aliases, no key twice, and 1e9 is a number."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml


class Loader(yaml.SafeLoader):
    """The safe loader, made stricter where a slip would go unseen."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse aliases: a few nested ones describe more data than any memory holds."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not read", problem_mark=mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuse a key that comes twice: the first value would be lost without a word."""
        names = [key.value for key, _ in node.value]
        for position, (key, _) in enumerate(node.value):
            if isinstance(key, yaml.ScalarNode) and key.value in names[:position]:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} comes twice",
                                           problem_mark=key.start_mark)
        return super().construct_mapping(node, deep)


# YAML 1.1 takes a number without a point or without a signed exponent for text.
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"))
