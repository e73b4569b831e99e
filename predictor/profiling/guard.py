"""Whether a machine is quiet enough to be measured."""

from __future__ import annotations

import os
import time
from pathlib import Path

from predictor.spec.errors import InputError

MOST_BUSY = 0.5
"""Cores that other processes may keep busy while a CPU is measured."""
LOOKS, LOOK_S = 5, 1.0


def require_quiet_cpu() -> None:
    """Return when fewer than half a core is busy, over one second out of five.

    This is the load at this moment and not the kernel's average over the last minute, which still
    holds the campaign that is being resumed.

    Raises
    ------
    InputError
        When other processes keep the cores busy.
    """
    busiest = min(_busy_cores_until(MOST_BUSY))
    if busiest > MOST_BUSY:
        raise InputError.of(
            "quiet-machine", f"other processes keep {busiest:.1f} cores busy and at most "
            f"{MOST_BUSY} may be while a CPU is measured", "stop them, or measure all the same "
            "with --noisy", "--noisy")


def _busy_cores_until(low: float) -> list[float]:
    seen: list[float] = []
    while len(seen) < LOOKS and not (seen and seen[-1] <= low):
        before = _busy_s()
        time.sleep(LOOK_S)
        seen.append((_busy_s() - before) / LOOK_S)
    return seen


def _busy_s() -> float:
    """Return the seconds that the cores have worked since the machine started (proc(5))."""
    cells = [int(cell) for cell in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _waiting, irq, softirq, _steal = cells
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
