"""What remains visible of communication that runs beside computation."""

from __future__ import annotations

import numpy as np

from predictor.lowering.tables import Floats

SLOWDOWN = 1.13
"""Both sides stretch while they overlap: 1.1256 measured by Galvatron (hardware_configs), 1.19 mean
on four GPU types (arXiv 2507.03114)."""


def overlapped_s(
    compute_s: Floats, communication_s: Floats, slowdown: Floats | float = SLOWDOWN
) -> Floats:
    """Return the time of both when they run side by side.

    The shorter one is hidden entirely but slows the longer by ``slowdown`` for as long as it
    lasts; the rest runs at full speed. Never shorter than either, never longer than their sum,
    which a slowdown of 2 gives: nothing is gained where both need the same cores.
    """
    longer = np.maximum(compute_s, communication_s)
    shorter = np.minimum(compute_s, communication_s)
    return np.asarray(np.minimum(longer + (slowdown - 1) * shorter, longer + shorter))


def exposed_s(
    window_s: Floats, communication_s: Floats, slowdown: Floats | float = SLOWDOWN
) -> Floats:
    """Return what ``communication_s`` adds to a window of computation it may hide behind."""
    return np.asarray(overlapped_s(window_s, communication_s, slowdown) - window_s)
