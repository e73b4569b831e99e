"""Groups of operations whose errors are counted apart: family, phase and data type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from predictor.lowering.tables import (
    CollectiveKind, CollectiveTable, Dtype, Ints, KernelKind, KernelTable, Phase,
)
from predictor.timing.residual import UNKNOWN_GROUP

KERNEL_GROUPS = tuple(
    f"{kind.name.lower()}/{phase.name.lower()}/{dtype.name.lower()}"
    for kind in KernelKind for phase in Phase for dtype in Dtype)
"""Names of the groups of kernels; a recomputed kernel is a forward one."""
COLLECTIVE_GROUPS = tuple(
    f"{kind.name.lower()}/{where}" for kind in CollectiveKind for where in ("inside", "across"))
"""Names of the groups of collectives: inside a scale-up domain or across several."""


def kernel_groups(table: KernelTable) -> Ints:
    """Return the index into :data:`KERNEL_GROUPS` of every row."""
    phase = np.where(table.phase == Phase.RECOMPUTE, int(Phase.FORWARD), table.phase)
    return np.asarray((table.kind * len(Phase) + phase) * len(Dtype) + table.dtype)


def collective_groups(table: CollectiveTable) -> Ints:
    """Return the index into :data:`COLLECTIVE_GROUPS` of every row."""
    return np.asarray(table.kind * 2 + (table.domains > 1))


def nearest(names: Sequence[str], known: Sequence[str]) -> tuple[Ints, Ints]:
    """Return for each of ``names`` the position of the group in ``known`` to lean on, and how far
    off it is: 0 the group itself, 1 another type, 2 another phase too; unknown where even the
    family has none. Both of shape (names,).
    """
    index = {name: place for place, name in enumerate(known)}
    place = np.full(len(names), UNKNOWN_GROUP, dtype=np.int64)
    steps = np.zeros(len(names), dtype=np.int64)
    for row, name in enumerate(names):
        if name in index:
            place[row] = index[name]
            continue
        parts = name.split("/")
        for distance in range(1, len(parts)):
            start = "/".join(parts[:-distance]) + "/"
            near = next((index[other] for other in known if other.startswith(start)), None)
            if near is not None:
                place[row], steps[row] = near, distance
                break
    return place, steps
