"""What a learned model is shown: features, log ratios, weights and the keys to hold rows out by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from predictor.datasets.collectives import learnable, read_collectives
from predictor.lowering.tables import CollectiveKind, Dtype, Floats, Ints
from predictor.timing.collective_features import COLLECTIVE_FEATURES, collective_features
from predictor.timing.collectives import collective_times
from predictor.timing.device import Regime
from predictor.timing.features import (
    FEATURES, MODEL_OF_KIND, MODELS, SOFTWARE, Conditions, Matrix, TimingKind, kernel_features,
)
from predictor.timing.groups import (
    COLLECTIVE_GROUPS, KERNEL_GROUPS, collective_groups, kernel_groups,
)
from predictor.timing.kernels import kernel_times

if TYPE_CHECKING:
    from predictor.datasets.kernels import KernelMeasurements
    from predictor.training.sources import Table

HOST_BOUND_LOG = 1.0
"""An eager call that takes e times the device time of its kernels says how slow the host was."""
WEIGHT_EXPONENT = -0.5
"""Rows of a cell (source, GPU, library, type) weigh as its size to this power: a table a hundred
times larger counts ten times as much, not a hundred."""


@dataclass(frozen=True, slots=True)
class LearningRows:
    """Operations of one model. Arrays have shape (rows,) unless said otherwise.

    A measurement of several kernels (both gradients of a linear layer) is several rows that share
    its log ratio.
    """

    model: str
    features: tuple[str, ...]
    x: Matrix
    """Shape (rows, features)."""
    analytic_s: Floats
    log_ratio: Floats
    """Log of measured over analytic time of the whole measurement."""
    weight: Floats
    group: Ints
    """Index into ``groups``."""
    groups: tuple[str, ...]
    measurement: Ints
    """Measurement each row belongs to, counted over all rows of the source tables."""
    measured_s: Floats
    """Of the row's measurement."""
    shape: Ints
    """Equal for equal work, whatever ran it."""
    gpu: NDArray[Any]
    source: NDArray[Any]
    """Table that the row came from."""
    label: NDArray[Any]
    """What people call the row, for lists of the worst."""

    def __len__(self) -> int:
        return len(self.log_ratio)

    def take(self, rows: NDArray[Any]) -> Self:
        """Return some rows, by number or mask."""
        names = ("x", "analytic_s", "log_ratio", "weight", "group", "measurement", "measured_s",
                 "shape", "gpu", "source", "label")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def sample(self, most: int, seed: int) -> Self:
        """Return ``most`` rows at random, the same for the same seed; all when there are fewer."""
        if len(self) <= most:
            return self
        chosen = np.random.default_rng(seed).choice(len(self), most, replace=False)
        return self.take(np.sort(chosen))

    def column(self, name: str) -> NDArray[np.float32]:
        """Return one feature."""
        return self.x[:, self.features.index(name)]


def kernel_rows(found: KernelMeasurements) -> dict[str, LearningRows]:
    """Return the rows of each model in :data:`MODELS` that ``found`` has rows for."""
    analytic = kernel_times(found.table, found.gpus, Regime.ISOLATED)
    of_row = found.measurement
    ratio = np.log(found.measured_s / found.sum_s(analytic))[of_row]
    share = 1.0 / np.bincount(of_row, minlength=len(found))[of_row]
    weight = share * cell_weights(found.source, found.gpu, found.software,
                                  _dtypes(found))[of_row]
    conditions = conditions_of(found)
    words = {name: np.array(getattr(found, name), dtype=object)[of_row]
             for name in ("gpu", "source")}
    shape = _shape_keys(found)[of_row]
    label = np.array([f"{impl or op} {way}" for impl, op, way in zip(
        found.impl, found.op, found.passes, strict=True)], dtype=object)[of_row]
    rows = {}
    for number, model in enumerate(MODELS):
        at = np.flatnonzero(MODEL_OF_KIND[found.table.kind] == number)
        if not len(at):
            continue
        table = found.table.take(at)
        rows[model] = LearningRows(
            model, FEATURES[model],
            kernel_features(model, table, found.gpus, conditions.take(at), analytic[at]),
            analytic[at], ratio[at], weight[at], kernel_groups(table), KERNEL_GROUPS, of_row[at],
            found.measured_s[of_row][at], shape[at], words["gpu"][at], words["source"][at],
            label[at])
    return rows


def collective_rows(tables: Sequence[Table]) -> LearningRows:
    """Return the rows of the model of collectives.

    What a GPU is to kernels a system is to collectives: its links decide. Rows of one size on one
    curve (system, collective, ranks) count as one shape.
    """
    import pandas as pd

    found = learnable(read_collectives(
        pd.concat([table.frame for table in tables], ignore_index=True)))
    analytic = collective_times(found.table, found.networks)
    ratio = np.log(found.measured_s / analytic)
    system = np.array([f"{source} {system}" for source, system in zip(
        found.source, found.system, strict=True)], dtype=object)
    key = np.column_stack([found.table.kind, found.table.bytes, found.table.group_size,
                           found.table.domains])
    _, shape = np.unique(key, axis=0, return_inverse=True)
    label = np.array([CollectiveKind(kind).name.lower() for kind in found.table.kind.tolist()],
                     dtype=object)
    return LearningRows(
        "collectives", COLLECTIVE_FEATURES,
        collective_features(found.table, found.networks, analytic), analytic, ratio,
        cell_weights(system, found.table.kind, found.table.group_size),
        collective_groups(found.table), COLLECTIVE_GROUPS, np.arange(len(found)),
        found.measured_s, shape.ravel().astype(np.int64), system,
        np.array(found.source, dtype=object), label)


def host_bound(found: KernelMeasurements) -> NDArray[Any]:
    """Return a reason for calls timed with their launches where the host decides the time.

    Shape (measurements,), empty text for the others.
    """
    analytic = found.sum_s(kernel_times(found.table, found.gpus, Regime.ISOLATED))
    eager = np.isin(found.timing_kind, ["event", "host"])
    late = np.log(found.measured_s / analytic) > HOST_BOUND_LOG
    return np.where(eager & late, "the host decides the time", "").astype(object)


def conditions_of(found: KernelMeasurements) -> Conditions:
    """Return how each kernel of the table was run and timed."""
    kinds = {kind.name.lower(): float(kind) for kind in TimingKind}
    timing = np.array([kinds[word] for word in found.timing_kind])
    libraries = {name: float(code) for code, name in enumerate(SOFTWARE)}
    software = np.array([libraries.get(word, np.nan) for word in found.software])
    impl = np.array(found.impl, dtype=str)
    deterministic = np.char.endswith(impl, "_det").astype(float)
    first = np.unique(found.measurement, return_index=True)[1]
    block = (found.table.dtype[first] == Dtype.FP4) | (np.char.find(impl, "block") >= 0) \
        | (np.char.find(impl, "mxfp8") >= 0)
    of_kernel = found.measurement
    return Conditions(timing[of_kernel], software[of_kernel], deterministic[of_kernel],
                      block.astype(float)[of_kernel])


def cell_weights(*keys: Sequence[Any] | NDArray[Any]) -> Floats:
    """Return a weight per row from the size of its cell, mean 1; ``keys`` have shape (rows,)."""
    codes = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        _, code = np.unique(np.asarray(key, dtype=str), return_inverse=True)
        codes = codes * (int(code.max(initial=0)) + 1) + code
    _, cell, size = np.unique(codes, return_inverse=True, return_counts=True)
    weight = size[cell] ** WEIGHT_EXPONENT
    return np.asarray(weight / weight.mean() if len(weight) else weight)


def _dtypes(found: KernelMeasurements) -> Ints:
    first = np.unique(found.measurement, return_index=True)[1]
    return np.asarray(found.table.dtype[first])


def _shape_keys(found: KernelMeasurements) -> Ints:
    """Number the distinct shapes over all operations."""
    _, key = np.unique(found.shapes, axis=0, return_inverse=True)
    return np.asarray(key, dtype=np.int64).ravel()
