"""Reads tables of measured kernels into the columns that timing takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from predictor.datasets.kernel_rows import UNKNOWN_GPU, KernelRows
from predictor.datasets.kernel_schema import normalise
from predictor.datasets.physical import beyond_hardware
from predictor.datasets.sources import kernels_long
from predictor.datasets.tables import read_table, require_columns
from predictor.lowering.tables import Dtype, Floats, GpuTable, Ints, KernelTable

if TYPE_CHECKING:
    import pandas as pd

LAUNCH_BOUND_S = 100e-6
"""An event-timed call shorter than this is refused: eager launches cost 10 to 60 us."""
COARSE_S = 10e-6
"""Times are recorded in whole microseconds by some profilers: below this they say little."""
CHAINS = frozenset({"rope", "cross_entropy", "embedding"})
"""Operations whose sources ran a chain of unfused kernels and do not list them."""
FLAGGED = "flagged as bad"


@dataclass(frozen=True, slots=True)
class KernelMeasurements:
    """Measured kernels. Arrays of the table have one entry per kernel, the others one per
    measurement: the backward pass of a linear layer is one measurement of two kernels."""

    table: KernelTable
    gpus: GpuTable
    measurement: Ints
    """Shape (kernels,): the measurement that each row of ``table`` belongs to."""
    measured_s: Floats
    ids: tuple[str, ...]
    op: tuple[str, ...]
    source: tuple[str, ...]
    gpu: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    """Row and reason of what is not scored."""
    timing_kind: tuple[str, ...]
    """What the time includes: see :data:`predictor.datasets.kernel_schema.TIMING_KINDS`."""
    software: tuple[str, ...]
    impl: tuple[str, ...]
    licence: tuple[str, ...]
    """SPDX identifiers; blank where nobody states one."""
    passes: tuple[str, ...]
    rows: Ints
    """Shape (measurements,): position in the table that was read."""
    shapes: Floats
    """Shape (measurements, shape columns): what was run, blanks as -1; equal rows are equal work
    (see :data:`predictor.datasets.kernel_rows.SHAPES`)."""

    def __len__(self) -> int:
        return len(self.measured_s)

    def sum_s(self, kernel_s: Floats) -> Floats:
        """Return the seconds of every measurement from those of its kernels."""
        return np.asarray(np.bincount(self.measurement, weights=kernel_s,
                                      minlength=len(self.measured_s)), dtype=np.float64)

    def refusals(self) -> dict[str, int]:
        """Return how many rows were refused for each reason."""
        return dict(Counter(why for _, why in self.refused))

    def without(self, why: np.ndarray[Any, Any]) -> Self:
        """Return the measurements whose reason is empty; the others join ``refused``.

        Parameters
        ----------
        why
            Shape (measurements,): reasons, such as those of
            :func:`predictor.datasets.physical.reasons`.
        """
        keep = why == ""
        kept = np.flatnonzero(keep)
        of_kept = keep[self.measurement]
        words: dict[str, Any] = {
            name: tuple(getattr(self, name)[row] for row in kept.tolist()) for name in _WORDS}
        refused = [(self.ids[row], str(why[row])) for row in np.flatnonzero(~keep).tolist()]
        return replace(
            self, table=self.table.take(of_kept),
            measurement=(np.cumsum(keep) - 1)[self.measurement[of_kept]],
            measured_s=self.measured_s[kept], rows=self.rows[kept], shapes=self.shapes[kept],
            refused=(*self.refused, *refused), **words)


_WORDS = ("ids", "op", "source", "gpu", "timing_kind", "software", "impl", "licence", "passes")


def measurements(frame: pd.DataFrame, *, flagged: bool = False) -> KernelMeasurements:
    """Return the measurements of a tidy table (:mod:`predictor.datasets.kernel_schema`).

    Rows that name no known GPU, operation, pass or type, or lack a shape or a time, are refused
    with a reason. Whether a time is possible at all is for
    :func:`predictor.datasets.physical.reasons` to say.

    Parameters
    ----------
    frame
        The table; absent columns are blank.
    flagged
        Whether rows that their table flags as bad are read too.

    Raises
    ------
    InputError
        When the frame has columns that the schema does not have.
    """
    rows = KernelRows(normalise(frame))
    why = rows.reasons()
    if not flagged:
        why = np.where(_flagged(rows), FLAGGED, why)
    return _read(rows, why)


def read_kernels(source: str | Path | pd.DataFrame) -> KernelMeasurements:
    """Return the measurements of a kernels_long table and why the rest of its rows is refused.

    Refused: rows that the table flags as bad, GPUs outside the catalogue, unlisted chains of
    kernels, blank shapes, and times that physics excludes (above the peak rate, below the time
    that memory needs) or that measure the host rather than the device.

    Raises
    ------
    InputError
        When the table cannot be read or lacks the schema's columns.
    """
    frame = read_table(source)
    require_columns(frame, ("gpu", "dtype", "op", "pass", "latency_us", "m", "n", "k"),
                    "measured kernels")
    rows = KernelRows(kernels_long.tidy(frame))
    found = _read(rows, _unscored(rows))
    names = {name: np.array(_texts(frame, name), dtype=object) for name in ("op", "gpu", "id")}
    ids = names["id"] if "id" in frame else np.array([str(row) for row in range(len(frame))])
    kept = found.rows.tolist()
    found = replace(
        found, ids=tuple(ids[kept].tolist()), op=tuple(names["op"][kept].tolist()),
        gpu=tuple(names["gpu"][kept].tolist()),
        refused=tuple((str(ids[int(row)]), why) for row, why in found.refused))
    return found.without(
        beyond_hardware(found.table, found.gpus, found.measurement, found.measured_s))


def _texts(frame: pd.DataFrame, name: str) -> list[str]:
    if name not in frame:
        return [""] * len(frame)
    return [str(cell) for cell in frame[name].astype(object).fillna("")]


def _flagged(rows: KernelRows) -> np.ndarray[Any, Any]:
    return np.array([word.startswith("BAD") for word in rows.words("flag")], dtype=bool)


def _unscored(rows: KernelRows) -> np.ndarray[Any, Any]:
    """Return why each row of a table that is scored cannot be, empty where it can."""
    unreadable = rows.reasons()
    unfused = (rows.op == "rmsnorm") & (rows.words("source") == "estimate-train-time")
    event = rows.words("timing_kind") == "event"
    short = rows.seconds < np.where(event, LAUNCH_BOUND_S, COARSE_S)
    cases = ((_flagged(rows), FLAGGED), (unreadable == UNKNOWN_GPU, UNKNOWN_GPU),
             (np.isin(rows.op, list(CHAINS)) | unfused, "unlisted chain of kernels"),
             (unreadable != "", unreadable),
             (short, "too short to tell the kernel from its launch"))
    return np.select([case for case, _ in cases], [why for _, why in cases], "").astype(object)


def _read(rows: KernelRows, why: np.ndarray[Any, Any]) -> KernelMeasurements:
    """Return the rows whose reason is empty, under their row numbers."""
    kept = np.flatnonzero(why == "")
    table, measurement = rows.kernels(kept)
    gpus = GpuTable.from_gpus(rows.gpus)
    if not rows.gpus:
        gpus = replace(gpus, peak_flops=np.empty((0, len(Dtype))))

    def words(name: str) -> tuple[str, ...]:
        return tuple(rows.words(name)[kept].tolist())

    refused = np.flatnonzero(why != "")
    return KernelMeasurements(
        table, gpus, measurement, rows.seconds[kept], ids=tuple(map(str, kept.tolist())),
        op=words("op"), source=words("source"), gpu=words("gpu"),
        refused=tuple((str(row), str(why[row])) for row in refused.tolist()),
        timing_kind=words("timing_kind"), software=words("software"), impl=words("impl"),
        licence=words("licence"), passes=words("pass"), rows=kept, shapes=rows.shapes(kept))
