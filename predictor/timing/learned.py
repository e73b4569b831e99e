"""The learned timer: analytic times, corrected by what measurements say they miss.

Micro-benchmarks measure kernels alone; a step runs them on a hot device. The correction is
learned against the analytic time of an isolated kernel and applied to that of the regime asked
for, so that clocks and power stay the analytic model's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import product

import numpy as np
from numpy.typing import NDArray

from predictor.lowering.tables import (
    CPU, CollectiveTable, Columns, Dtype, Floats, GpuTable, Ints, KernelKind, KernelTable,
    NetworkTable, Phase,
)
from predictor.timing.collective_features import collective_features
from predictor.timing.collectives import collective_times
from predictor.timing.device import Regime
from predictor.timing.features import (
    DEVICE_FEATURES, MODEL_OF_KIND, MODELS, Conditions, Matrix, device_features, kernel_features,
)
from predictor.timing.groups import (
    COLLECTIVE_GROUPS, KERNEL_GROUPS, collective_groups, kernel_groups, nearest,
)
from predictor.timing.kernels import kernel_times
from predictor.timing.residual import Flags, UNKNOWN_GROUP, ResidualModel, on_known_device

COLLECTIVES = "collectives"
SAME_DEVICE = 1e-5
"""Relative difference of a GPU's figures that rounding to float32 explains."""
ROWS_PER_TASK = 8_192
"""Rows that one thread looks at together, or up to twice as many: enough for XGBoost, and their
columns stay in a core's cache."""
WIDTH_BYTES = np.array([4.0, 4.0, 2.0, 2.0, 1.0, 0.5])
"""Of one element, by data type."""
_ODD = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9], dtype=np.uint64)


class Provenance(IntEnum):
    """What a time rests on, from most to least."""

    LEARNED = 0
    NEIGHBOUR = 1
    """Learned, with the error of a related family: its own has too few measurements."""
    EXTRAPOLATED = 2
    """Outside what was measured: another GPU, or sizes beyond all that were timed."""
    ANALYTIC = 3
    """Physics only: nothing like it was measured."""


@dataclass(frozen=True, slots=True)
class Estimates(Columns):
    """Times with intervals. Arrays have shape (rows,)."""

    seconds: Floats
    low_s: Floats
    """NaN where no interval was calibrated."""
    high_s: Floats
    provenance: Ints
    """:class:`Provenance` of each row."""


@dataclass(frozen=True, slots=True)
class LearnedTimer:
    """Times of kernels and collectives from analytic models with learned corrections.

    A family without a model, or a model without measurements of the family, stays analytic.
    """

    models: Mapping[str, ResidualModel]
    """By name: those of :data:`predictor.timing.features.MODELS` and ``collectives``."""
    provenance: str = "learned"
    _kernels: dict[str, tuple[Ints, Ints]] = field(default_factory=dict)
    _collectives: dict[str, tuple[Ints, Ints]] = field(default_factory=dict)

    def kernels(self, table: KernelTable, gpus: GpuTable) -> Floats:
        """Return the device seconds of every row in a training step, shape (rows,)."""
        return self.estimate_kernels(table, gpus).seconds

    def collectives(self, table: CollectiveTable, networks: NetworkTable) -> Floats:
        """Return the seconds of every row, shape (rows,)."""
        return self.estimate_collectives(table, networks).seconds

    def estimate_kernels(
        self, table: KernelTable, gpus: GpuTable, *, regime: Regime = Regime.TRAINING,
        conditions: Conditions | None = None, level: float | None = None,
    ) -> Estimates:
        """Return the times of every row, with intervals when a ``level`` is given.

        Rows that are equal in every column are looked at once.
        """
        conditions = conditions or Conditions.usual(table)
        first, inverse = distinct([*_columns(table), *_columns(conditions)])
        found = self._kernel_estimates(table.take(first), gpus, regime, conditions.take(first),
                                       level)
        return found.take(inverse)

    def estimate_collectives(
        self, table: CollectiveTable, networks: NetworkTable, *, level: float | None = None
    ) -> Estimates:
        """Return the times of every row, with intervals when a ``level`` is given."""
        first, inverse = distinct(_columns(table))
        unique = table.take(first)
        analytic = collective_times(unique, networks)
        found = _analytic(analytic)
        model = self.models.get(COLLECTIVES)
        at = np.flatnonzero(analytic > 0)
        if model is not None and len(at):
            timed = unique.take(at)
            x = collective_features(timed, networks, analytic[at])
            leaning = self._leaning(self._collectives, model, COLLECTIVE_GROUPS)
            _correct(found, at, model, x, collective_groups(timed), leaning, level)
            # Networks differ in kind: without a sibling that was measured, a correction does harm.
            strange = at[~_on_known_network(model, x)]
            found.seconds[strange] = analytic[strange]
            found.low_s[strange] = found.high_s[strange] = np.nan
            found.provenance[strange] = int(Provenance.ANALYTIC)
        return found.take(inverse)

    def covers(self, gpus: GpuTable) -> NDArray[np.bool_]:
        """Return whether any model of kernels learned from each GPU, shape (gpus,).

        Models that do not say which GPUs they learned from count as having seen all.
        """
        figures = device_features(gpus).astype(np.float32)
        named = [model for name, model in self.models.items() if name in MODELS
                 and set(DEVICE_FEATURES[1:]) & set(getattr(model, "device_columns", ()))]
        seen = np.full(len(figures), not named)
        for model in named:
            seen |= _among(figures, model)
        return seen

    def _kernel_estimates(
        self, table: KernelTable, gpus: GpuTable, regime: Regime, conditions: Conditions,
        level: float | None,
    ) -> Estimates:
        """Return the times of every row; parts of large tables run beside each other."""
        number = MODEL_OF_KIND[table.kind]
        parts = [(name, rows) for place, name in enumerate(MODELS)
                 for rows in _parts(np.flatnonzero(number == place))]

        def estimated(part: tuple[str, Ints]) -> Estimates:
            name, rows = part
            return self._of_model(name, table.take(rows), gpus, regime, conditions.take(rows),
                                  level)

        found = _analytic(np.empty(len(table)))
        with ThreadPoolExecutor() as pool:
            answers = map(estimated, parts) if len(parts) <= len(MODELS) \
                else pool.map(estimated, parts)
            for (_, rows), answer in zip(parts, answers, strict=True):
                for to, of in zip(_columns(found), _columns(answer), strict=True):
                    to[rows] = of
        return found

    def _of_model(
        self, name: str, table: KernelTable, gpus: GpuTable, regime: Regime,
        conditions: Conditions, level: float | None,
    ) -> Estimates:
        """Return the times of rows that all belong to the model ``name``."""
        isolated = kernel_times(table, gpus, Regime.ISOLATED)
        found = _analytic(isolated if regime == Regime.ISOLATED
                          else kernel_times(table, gpus, regime))
        hot = name == "gemm" and regime == Regime.TRAINING
        at = np.flatnonzero(table.dtype <= WIDEST_HOT) if hot else np.arange(len(table))
        if name not in self.models or not len(at):
            return found
        model = self.models[name]
        rows = leaning_kernels(table.take(at), model)
        x = kernel_features(name, rows, gpus, conditions.take(at), isolated[at])
        leaning = self._leaning(self._kernels, model, KERNEL_GROUPS)
        group = kernel_groups(rows)
        offset = _hot_level(model, rows, gpus, leaning[0]) if hot else 0.0
        _correct(found, at, model, x, group, leaning, level, offset)
        lent = rows.kind != table.kind[at]
        found.provenance[at] = np.where(
            lent, np.maximum(found.provenance[at], int(Provenance.NEIGHBOUR)),
            found.provenance[at])
        return found

    @staticmethod
    def _leaning(
        known: dict[str, tuple[Ints, Ints]], model: ResidualModel, names: Sequence[str]
    ) -> tuple[Ints, Ints]:
        if model.name not in known:
            known[model.name] = nearest(names, model.groups)
        return known[model.name]


WIDEST_HOT = int(Dtype.BF16)
"""Products of 8 and 4 bits stay analytic in a step: the libraries that were measured are those of
inference, which quantise inside the product and scale by blocks; training libraries do not."""
_NEIGHBOURS = {KernelKind.OPTIMIZER: KernelKind.ELEMENTWISE,
               KernelKind.PERMUTE: KernelKind.ELEMENTWISE}
"""Families without measurements of their own and the family that does the same to memory."""


def leaning_kernels(table: KernelTable, model: ResidualModel) -> KernelTable:
    """Return the table with families that the model does not know as their neighbours."""
    known = {name.split("/")[0] for name in model.groups}
    kind, phase = table.kind.copy(), table.phase.copy()
    for family, neighbour in _NEIGHBOURS.items():
        if family.name.lower() not in known and neighbour.name.lower() in known:
            own = table.kind == family
            kind[own] = int(neighbour)
            phase[own & (phase == Phase.STEP)] = int(Phase.FORWARD)
    return replace(table, kind=kind, phase=phase)


LARGEST = np.array(list(product((8192.0, 16384.0), repeat=3))).T
"""Products (m, n, k), shape (3, products), whose rate is what SUSTAINED means (see
predictor/timing/device.py)."""


def _hot_level(
    model: ResidualModel, rows: KernelTable, gpus: GpuTable, place: Ints
) -> Floats:
    """Return the correction of the largest products of each row's device, family and type.

    Their rate under load is the hot regime's own constant; what micro-benchmarks add is how other
    shapes differ from them. A CPU has one regime: its campaigns keep every core
    busy. Shape (rows,).
    """
    first, inverse = distinct([rows.device, rows.kind, rows.dtype])
    count = LARGEST.shape[1]
    many = np.repeat(first, count)
    m, n, k = (np.tile(side, len(first)) for side in LARGEST)
    batch = np.where(rows.kind[many] == KernelKind.GEMM, 1.0, 8.0)
    size = WIDTH_BYTES[rows.dtype[many]]
    large = replace(
        rows.take(many), phase=np.zeros(len(many), dtype=np.int64), m=m, n=n, k=k, batch=batch,
        launches=np.ones(len(many)), flops=2 * batch * m * n * k,
        bytes=batch * (size * k * (m + n) + np.maximum(size, 2.0) * m * n))
    x = kernel_features(model.name, large, gpus, Conditions.usual(large))
    answer = model.predict(x, place[kernel_groups(large)])
    level = np.median(answer.log_ratio.reshape(-1, count), axis=1)[inverse]
    return np.asarray(np.where(gpus.generation[rows.device] == CPU, 0.0, level))


def _on_known_network(model: ResidualModel, x: Matrix) -> Flags:
    if not model.device_columns:
        return np.ones(len(x), dtype=np.bool_)
    columns = [model.features.index(name) for name in model.device_columns]
    return on_known_device(x[:, columns], model.devices)


def _columns(table: Columns) -> list[NDArray[np.generic]]:
    names: Sequence[str] = tuple(table.__dataclass_fields__)  # type: ignore[attr-defined]
    return [getattr(table, name) for name in names]


def distinct(columns: Sequence[NDArray[np.generic]]) -> tuple[Ints, Ints]:
    """Return the first row of each distinct combination, and the number of every row's.

    Columns of shape (rows,) are mixed into one 64-bit number per row: two different rows of a
    million meet with a probability of 3e-8.
    """
    mixed = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        bits = np.ascontiguousarray(column, dtype=np.float64).view(np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _ODD[0] + (bits ^ (bits >> np.uint64(32))) \
            * _ODD[1]
    mixed ^= mixed >> np.uint64(32)
    _, first, inverse = np.unique(mixed, return_index=True, return_inverse=True)
    return first, inverse


def _among(figures: Matrix, model: ResidualModel) -> NDArray[np.bool_]:
    """Return which rows of :func:`device_features` are devices of the model, shape (gpus,).

    A column that depends on the data type too (the peak rate) says nothing about the GPU alone.
    """
    columns = [(place, DEVICE_FEATURES[1:].index(name))
               for place, name in enumerate(model.device_columns)
               if name in DEVICE_FEATURES[1:]]
    mine, theirs = zip(*columns, strict=True)
    known = np.asarray(model.devices)[:, list(mine)]
    close = np.isclose(figures[:, None, list(theirs)], known[None], rtol=SAME_DEVICE, atol=0.0)
    return np.asarray(np.any(np.all(close, axis=2), axis=1))


def _parts(rows: Ints) -> list[Ints]:
    """Return the rows of a model in parts for threads; none where there are no rows."""
    return np.array_split(rows, max(1, len(rows) // ROWS_PER_TASK)) if len(rows) else []


def _analytic(seconds: Floats) -> Estimates:
    nothing = np.full(len(seconds), np.nan)
    return Estimates(seconds.copy(), nothing, nothing.copy(),
                     np.full(len(seconds), int(Provenance.ANALYTIC)))


def _correct(
    found: Estimates, at: Ints, model: ResidualModel, x: Matrix, group: Ints,
    leaning: tuple[Ints, Ints], level: float | None, offset: Floats | float = 0.0,
) -> None:
    """Write the corrected times of the rows ``at`` into ``found``; ``offset`` is taken off the
    corrections."""
    place, steps = leaning[0][group], leaning[1][group]
    answer = model.predict(x, place)
    seconds = found.seconds[at] * np.exp(answer.log_ratio - offset)
    found.seconds[at] = seconds
    found.provenance[at] = np.select(
        [place == UNKNOWN_GROUP, answer.outside, steps > 0],
        [int(Provenance.ANALYTIC), int(Provenance.EXTRAPOLATED), int(Provenance.NEIGHBOUR)],
        int(Provenance.LEARNED))
    if level is not None:
        reach = np.exp(model.half_width(place, answer.outside | (steps > 0), level))
        found.low_s[at], found.high_s[at] = seconds / reach, seconds * reach
