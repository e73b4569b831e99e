"""What the analytic times of a family of kernels miss, and how sure of it one can be.

A learned residual is the logarithm of measured over analytic time. Within the domain that it was
trained on, the regressor answers; away from it, the answer fades to the median of the kernel's
group, since trees are constant there whatever the physics does. A GPU that nobody measured is away
from the domain too, even with each of its figures between those of others; the trees still answer,
since they speak for such a GPU through its figures, with the error that this was found to have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from predictor.lowering.tables import Floats, Ints
from predictor.spec.errors import InputError, Problem

Flags = NDArray[np.bool_]
Singles = NDArray[np.float32]

MARGIN: Final = 0.05
"""How far, in ranges of a feature, a value may lie beyond its training domain and still count as
inside: rounding and neighbouring sizes, not another kind of kernel."""
LARGEST: Final = float(np.float32(1e30))
"""Of a bound or centre: ranges of float32 features stay finite."""
UNKNOWN_GROUP: Final = -1
"""The group of a kernel that no training row was like."""
SAME_DEVICE: Final = 1e-5
"""Relative difference of figures of one GPU: they went through float32 and logarithms."""
MOST_DEVICES: Final = 1_000
"""Each costs a comparison per row."""


def no_devices() -> Singles:
    """Return the devices of a model that does not tell devices apart, shape (0, 0)."""
    return np.zeros((0, 0), dtype=np.float32)


class Regressor(Protocol):
    """Anything that turns features into log ratios."""

    def predict(self, x: NDArray[np.float32]) -> Floats:
        """Return the log of measured over analytic time, shape (rows,), of x (rows, features)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """Corrections of a table of kernels."""

    log_ratio: Floats
    """Natural log of true over analytic time, shape (rows,)."""
    outside: Flags
    """Whether a row lies outside the training domain, shape (rows,)."""


@dataclass(frozen=True, slots=True, eq=False)
class ResidualModel:
    """A regressor with the domain it was trained on and the spread of its errors.

    The widths are those of split conformal prediction, calibrated by group (Mondrian categories;
    Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, section 4.5).

    Raises
    ------
    InputError
        When shapes disagree, a name repeats, bounds are not finite or the wrong way round, levels
        do not rise between 0 and 1, a width is negative, or a device column is no feature. All
        problems at once.
    """

    name: str
    """Family of kernels: gemm, attention, memory_bound or collectives."""
    features: tuple[str, ...]
    """Columns that the regressor reads, in order."""
    regressor: Regressor
    """What was trained."""
    low: Floats
    """Smallest training value of each feature, shape (features,)."""
    high: Floats
    """Largest training value of each feature, shape (features,)."""
    groups: tuple[str, ...]
    """Families that errors were calibrated in, such as gemm/fwd/bf16."""
    centre: Floats
    """Median log ratio of each group, shape (groups,)."""
    levels: Floats
    """Shares of errors that widths cover, rising, such as 0.5 to 0.99, shape (levels,)."""
    widths: Floats
    """Quantiles of the absolute log error by group, inside (0) and outside (1) the domain, and
    level, shape (groups, 2, levels); NaN where too few rows were held out to tell."""
    device_columns: tuple[str, ...] = ()
    """Those of ``features`` that tell GPUs apart; none means that no GPU counts as unknown."""
    devices: Singles = field(default_factory=no_devices)
    """Distinct values of ``device_columns`` in training, float32, shape (devices, columns); NaN
    where a figure was missing."""

    def __post_init__(self) -> None:
        problems = _wrong_shapes(self) or _wrong_values(self)
        if problems:
            raise InputError(problems)

    def predict(self, x: NDArray[np.float32], group: Ints) -> Residuals:
        """Return the log ratios of kernels and whether they lie outside the training domain.

        A row whose worst feature lies d ranges beyond the domain and its margin gets
        ``centre + (f - centre) * exp(-d)``. A row of ``UNKNOWN_GROUP`` is outside and keeps the
        analytic time. A row of none of the ``devices`` is outside without fading from that alone.

        Parameters
        ----------
        x:
            Features, shape (rows, features). NaN is a missing value, never outside; in a device
            column it is another device where no training row missed it.
        group:
            Position of each row's group in ``groups`` or ``UNKNOWN_GROUP``, shape (rows,).

        Raises
        ------
        InputError
            When the shapes disagree or a group is none of the model's.
        """
        x = np.ascontiguousarray(x, dtype=np.float32)
        if x.ndim != 2 or x.shape[1] != len(self.features):
            raise _error(f"features of {self.name} have the shape {x.shape}, not (rows, "
                         f"{len(self.features)})", "give the columns that the model names")
        self._check_groups(group, len(x))
        distance = beyond(x, self.low, self.high)
        known = group != UNKNOWN_GROUP
        centre = np.append(self.centre, 0.0)[group]
        pull = np.where(known, np.exp(-distance), 0.0)
        learned = self.regressor.predict(x)
        return Residuals(log_ratio=centre + (learned - centre) * pull,
                         outside=(distance > 0) | ~known | ~self._on_known_device(x))

    def _on_known_device(self, x: Singles) -> Flags:
        if not self.device_columns:
            return np.ones(len(x), dtype=np.bool_)
        columns = [self.features.index(name) for name in self.device_columns]
        return on_known_device(x[:, columns], self.devices)

    def half_width(self, group: Ints, outside: Flags, level: float) -> Floats:
        """Return the log half width of intervals that cover ``level`` of rows, shape (rows,).

        Linear between calibrated levels; NaN where the group, the side of the domain or a level
        this far out was not calibrated.

        Raises
        ------
        InputError
            When a group is none of the model's, or ``level`` is not within 0 and 1.
        """
        self._check_groups(group, len(outside))
        if not 0 < level < 1:
            raise _error(f"a level of {level:g} is not between 0 and 1", "ask for 0.9, say")
        last = len(self.levels) - 1
        if not self.levels[0] <= level <= self.levels[last]:
            return np.full(len(group), np.nan)
        upper = int(np.searchsorted(self.levels, level))
        curve = self.widths[group, outside.astype(np.int64)]
        width = curve[:, upper]
        if level < self.levels[upper]:
            share = (level - self.levels[upper - 1]) / (self.levels[upper] - self.levels[upper - 1])
            width = curve[:, upper - 1] + share * (width - curve[:, upper - 1])
        return np.asarray(np.where(group == UNKNOWN_GROUP, np.nan, width))

    def _check_groups(self, group: Ints, rows: int) -> None:
        if group.shape != (rows,):
            raise _error(f"{rows} rows of {self.name} come with groups of shape {group.shape}",
                         "give one group per row")
        if np.any((group < UNKNOWN_GROUP) | (group >= len(self.groups))):
            raise _error(f"a group of {self.name} lies outside {UNKNOWN_GROUP} to "
                         f"{len(self.groups) - 1}", "give positions in the model's groups")


def beyond(x: NDArray[np.float32], low: Floats, high: Floats) -> Floats:
    """Return how far the worst feature of each row lies beyond the domain, in ranges, (rows,).

    ``low`` and ``high`` are the bounds of each feature, shape (features,); the margin counts as
    inside. A feature that never varied in training counts in units of 1: features are logarithms,
    shares and flags.
    """
    span = high - low
    span = np.where(span > 0, span, 1.0)
    worst = np.zeros(len(x))
    for column in range(x.shape[1]):  # one column at a time: no matrix of doubles
        values = x[:, column]
        with np.errstate(over="ignore", invalid="ignore"):  # infinitely far is far
            far = np.maximum(low[column] - values, values - high[column]) / span[column] - MARGIN
        np.fmax(worst, far, out=worst)
    return worst


def on_known_device(figures: Singles, devices: Singles) -> Flags:
    """Return which rows are of one of the devices, shape (rows,).

    ``figures`` has the shape (rows, columns) and ``devices`` (devices, columns), both float32. A
    row matches a device when every figure is within ``SAME_DEVICE`` of its, relative to the
    device's, or both are NaN.
    """
    columns = np.ascontiguousarray(figures.T, dtype=np.float32)  # each is read once per device
    known = np.zeros(len(figures), dtype=np.bool_)
    slack = np.abs(devices.astype(np.float64)) * SAME_DEVICE
    lower, upper = (devices - slack).astype(np.float32), (devices + slack).astype(np.float32)
    for device in range(len(devices)):
        rows: NDArray[np.intp] | slice = slice(None)
        for column, low, high in zip(columns, lower[device], upper[device], strict=True):
            seen = column[rows]
            near = np.isnan(seen) if np.isnan(low) else (seen >= low) & (seen <= high)
            matching = np.flatnonzero(near)
            rows = matching if isinstance(rows, slice) else rows[matching]
        known[rows] = True
    return known


def shrunk(log_ratio: Floats, x: NDArray[np.float32], low: Floats, high: Floats,
           centre: float | Floats) -> Floats:
    """Return log ratios of shape (rows,) that fade to ``centre`` away from the domain."""
    return np.asarray(centre + (log_ratio - centre) * np.exp(-beyond(x, low, high)))


def _wrong_shapes(model: ResidualModel) -> list[Problem]:
    features, groups, levels = len(model.features), len(model.groups), np.size(model.levels)
    shapes = {"low": (features,), "high": (features,), "centre": (groups,), "levels": (levels,),
              "widths": (groups, 2, levels)}
    found = [f"{name} has the shape {np.shape(getattr(model, name))}, not {shape}"
             for name, shape in shapes.items() if np.shape(getattr(model, name)) != shape]
    found += [f"there are no {name}" for name in ("features", "groups", "levels")
              if not np.size(getattr(model, name))]
    columns = len(model.device_columns)
    if model.devices.ndim != 2 or model.devices.shape[1] != columns:
        found.append(f"devices has the shape {model.devices.shape}, not (devices, {columns})")
    return [_problem(f"{model.name}: {message}") for message in found]


def _wrong_values(model: ResidualModel) -> list[Problem]:
    found = [f"one of the {name} comes twice" for name in ("features", "groups")
             if len(set(getattr(model, name))) < len(getattr(model, name))]
    found += [f"{name} is not finite" for name in ("low", "high", "centre", "levels")
              if not (np.abs(getattr(model, name)) <= LARGEST).all()]
    if np.any(model.low > model.high):
        found.append("low is above high")
    if np.any(np.diff(model.levels) <= 0) or np.any((model.levels <= 0) | (model.levels >= 1)):
        found.append("levels do not rise between 0 and 1")
    if np.any((model.widths < 0) | np.isinf(model.widths)):
        found.append("a width is negative or infinite")
    return [_problem(f"{model.name}: {message}") for message in found + _wrong_devices(model)]


def _wrong_devices(model: ResidualModel) -> list[str]:
    devices, columns = model.devices, model.device_columns
    found = [f"the device column {name!r:.60} is no feature" for name in columns
             if name not in model.features]
    if len(set(columns)) < len(columns):
        found.append("one of the device columns comes twice")
    if devices.dtype != np.float32:
        found.append(f"devices are {devices.dtype}, not float32")
    if not (np.isnan(devices) | (np.abs(devices) <= LARGEST)).all():
        found.append("devices is not finite")
    if not (bool(columns) <= len(devices) <= MOST_DEVICES):
        found.append(f"there are {len(devices)} devices for {len(columns)} device columns, not 1 "
                     f"to {MOST_DEVICES}")
    return found


def _problem(message: str, remedy: str = "train the model again") -> Problem:
    return Problem("residual-model", message, remedy)


def _error(message: str, remedy: str) -> InputError:
    return InputError([_problem(message, remedy)])
