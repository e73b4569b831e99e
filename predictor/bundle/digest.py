"""Digests of files and the one way in which a manifest is written down."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def sha256_of(content: bytes) -> str:
    """Return the SHA-256 of ``content`` in 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def canonical_json(fields: Mapping[str, Any]) -> bytes:
    """Return ``fields`` as JSON with sorted keys: equal mappings give equal bytes.

    Raises
    ------
    ValueError
        When a number is not finite.
    """
    text = json.dumps(fields, sort_keys=True, indent=1, allow_nan=False)
    return text.encode("ascii") + b"\n"


def manifest_digest(fields: Mapping[str, Any]) -> str:
    """Return the digest of a manifest: of all of it but its own field ``digest``.

    The manifest names the digest of every other file, so this one identifies the whole bundle.
    """
    return sha256_of(canonical_json({name: value for name, value in fields.items()
                                     if name != "digest"}))
