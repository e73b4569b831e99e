"""Fits what a campaign says of a machine beside its kernels: see step/calibration.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.datasets.sources.campaign import RECORD, read_layers, read_overlaps
from predictor.datasets.steps import read_steps
from predictor.lowering.batch import Batch
from predictor.lowering.tables import CPU, Floats, GpuTable, KernelTable
from predictor.spec.errors import InputError
from predictor.spec.resolve import resolve
from predictor.step.calibration import Calibration, Coefficients
from predictor.step.compose import Timer
from predictor.step.data_parallel import buckets_of
from predictor.step.layers import LayerWork, layer_work
from predictor.timing.device import Regime
from predictor.timing.kernels import kernel_times
from predictor.timing.learned import LearnedTimer
from predictor.timing.overlap import SLOWDOWN

if TYPE_CHECKING:
    import pandas as pd

    from predictor.lowering.tables import CollectiveTable, NetworkTable

EAGER = "eager"
"""What campaigns run."""
LEAST_SCALE = 0.1
"""Of the collectives in layers: what is fitted below it is noise."""
FEWEST = 4
"""Timings of a kind that coefficients are fitted to; with fewer they stay as they are."""


@dataclass(frozen=True, slots=True)
class Isolated:
    """A timer whose kernels run as a campaign runs them: for a second or less on a cool device."""

    timer: Timer

    @property
    def provenance(self) -> str:
        """Name of the model behind the seconds."""
        return self.timer.provenance

    def kernels(self, table: KernelTable, gpus: GpuTable) -> Floats:
        """Return the device seconds of every row."""
        if isinstance(self.timer, LearnedTimer):
            return self.timer.estimate_kernels(table, gpus, regime=Regime.ISOLATED).seconds
        return kernel_times(table, gpus, Regime.ISOLATED)

    def collectives(self, table: CollectiveTable, networks: NetworkTable) -> Floats:
        """Return the seconds of every row."""
        return self.timer.collectives(table, networks)


def calibrate(folder: Path, timer: Timer, predictor: str) -> Calibration:
    """Return the calibration that a campaign's layers and overlaps give.

    ``predictor`` is the digest of what ``timer`` is made of.

    Raises
    ------
    InputError
        When the folder holds no campaign, nothing to fit to, or several GPUs.
    """
    if not (folder / RECORD).is_file():
        raise InputError.of("calibration-campaign", f"{folder} holds no campaign",
                            "give the folder that predict-time profile wrote", "CAMPAIGN")
    layers, overlaps = read_layers(folder), read_overlaps(folder)
    gpus = sorted({str(name) for frame in (layers, overlaps) if frame is not None
                   for name in frame["gpu"]})
    if len(gpus) != 1:
        raise InputError.of(
            "calibration-campaign", f"{folder} times layers and overlaps of {len(gpus)} GPUs",
            "give a campaign with layers: on one GPU" if not gpus else "split it", "CAMPAIGN")
    found = Coefficients(overlap_slowdown=_overlap(overlaps))
    fitted: dict[str, Any] = {"overlaps": 0 if overlaps is None else len(overlaps)}
    if layers is not None:
        found, scores = _fit_layers(layers, timer, found)
        fitted |= scores
    return Calibration(gpu=gpus[0], implementation=EAGER, predictor=predictor, coefficients=found,
                       fitted=fitted)


def _overlap(frame: pd.DataFrame | None) -> float:
    """Return the median of how much the longer of two stretches while the shorter runs."""
    if frame is None or len(frame) < FEWEST:
        return SLOWDOWN
    alone = frame[["collective_alone_s", "compute_alone_s"]].to_numpy()
    longer, shorter = alone.max(axis=1), alone.min(axis=1)
    slowdown = 1 + (frame["together_s"].to_numpy() - longer) / shorter
    return float(np.clip(np.median(slowdown), 1.0, 2.0))


@dataclass(frozen=True, slots=True)
class TimedLayers:
    """Timed layers of one kind. Arrays have shape (rows,)."""

    forward_s: Floats
    backward_s: Floats
    work: LayerWork
    on_cpu: bool

    def __len__(self) -> int:
        return len(self.forward_s)

    def own_s(self, found: Coefficients) -> tuple[Floats, Floats]:
        """Return forward and backward as predicted with ``found``, its collectives included."""
        work, join = self.work, _join(self.on_cpu)
        split = work.tensor_forward_s + work.tensor_backward_s > 0
        forward = work.launches_forward * (found.host_forward_s + split * found.tensor_forward_s)
        backward = work.launches_backward * (found.host_backward_s
                                             + split * found.tensor_backward_s)
        gather = work.gather_s + (work.gather_s > 0) * (
            work.layers * found.gather_layer_s + work.parameter_bytes * found.gather_s_per_byte)
        size = work.gradient_bytes
        reduce = work.reduce_s + (work.reduce_s > 0) * np.where(
            work.gather_s > 0, work.layers * found.shard_layer_s + size * found.shard_s_per_byte,
            buckets_of(size) * found.bucket_s + size * found.bucket_s_per_byte)
        return (gather + join(found.kernel_forward * work.kernel_forward_s
                              + found.tensor_collectives * work.tensor_forward_s, forward),
                gather + reduce + join(found.kernel_backward * work.kernel_backward_s
                                       + found.tensor_collectives * work.tensor_backward_s,
                                       backward))

    def error(self, found: Coefficients) -> float:
        """Return the mean absolute error in percent over both passes together."""
        predicted = np.add(*self.own_s(found))
        return float(100 * np.mean(np.abs(predicted / (self.forward_s + self.backward_s) - 1)))


def _join(on_cpu: bool) -> Callable[[Floats, Floats], Floats]:
    """Return how host and device make one time: on a CPU they are the same processor."""
    return np.add if on_cpu else np.maximum


def _fit_layers(
    frame: pd.DataFrame, timer: Timer, found: Coefficients
) -> tuple[Coefficients, dict[str, Any]]:
    kinds = timed_layers(frame, timer)
    plain = kinds.get("none")
    if plain is not None and len(plain) >= FEWEST:
        found = _with_plain(plain, found)
    for name, fit in (("tensor", _with_tensor), ("fsdp2", _with_sharded), ("ddp", _with_buckets)):
        if name in kinds and len(kinds[name]) >= FEWEST:
            found = fit(kinds[name], found)
    usual = Coefficients()
    return found, {name: {"layers": len(rows), "mape_before": rows.error(usual),
                          "mape_after": rows.error(found)} for name, rows in kinds.items()}


def timed_layers(frame: pd.DataFrame, timer: Timer) -> dict[str, TimedLayers]:
    """Return the rows of :func:`read_layers` by how their ranks share a layer."""
    kinds: dict[str, TimedLayers] = {}
    for name, rows in frame.groupby("parallel"):
        passes = {way: part.reset_index(drop=True) for way, part in rows.groupby("pass")}
        forward, backward = passes["fwd"], passes["bwd"]
        assert (forward["point"] == backward["point"]).all()  # both stand in one point's rows
        read = read_steps(forward)
        if read.refused:
            raise InputError(read.refused[0][1])
        pairs = [resolve(job, strategy)
                 for job, strategy in zip(read.jobs, read.strategies, strict=True)]
        batch = Batch.from_pairs([job for job, _, _ in pairs], [one for _, one, _ in pairs])
        kinds[str(name)] = TimedLayers(
            forward["latency_s"].to_numpy(dtype=float), backward["latency_s"].to_numpy(dtype=float),
            layer_work(batch, Isolated(timer)), bool((batch.gpus.generation == CPU).all()))
    return kinds


def _with_plain(rows: TimedLayers, found: Coefficients) -> Coefficients:
    work = rows.work
    forward = _scale_and_host(rows.forward_s, work.kernel_forward_s, work.launches_forward,
                              rows.on_cpu)
    backward = _scale_and_host(rows.backward_s, work.kernel_backward_s, work.launches_backward,
                               rows.on_cpu)
    return replace(found, kernel_forward=forward[0], host_forward_s=forward[1],
                   kernel_backward=backward[0], host_backward_s=backward[1])


def _with_tensor(rows: TimedLayers, found: Coefficients) -> Coefficients:
    """Both passes share the factor of the collectives; each has a dispatch of its own."""
    work = rows.work
    forward, backward = rows.own_s(replace(found, tensor_collectives=0.0))
    measured = np.r_[rows.forward_s, rows.backward_s]
    none = np.zeros(len(rows))
    columns = np.column_stack([
        np.r_[work.launches_forward, none], np.r_[none, work.launches_backward],
        np.r_[work.tensor_forward_s, work.tensor_backward_s]])
    dispatch_f, dispatch_b, scale = _shares(columns, measured - np.r_[forward, backward], measured)
    return replace(found, tensor_forward_s=dispatch_f, tensor_backward_s=dispatch_b,
                   tensor_collectives=max(scale, LEAST_SCALE))


def _with_sharded(rows: TimedLayers, found: Coefficients) -> Coefficients:
    forward, backward = rows.own_s(found)
    work = rows.work
    layer, byte = _line(rows.forward_s - forward, work.parameter_bytes, rows.forward_s)
    found = replace(found, gather_layer_s=layer, gather_s_per_byte=byte)
    _, backward = rows.own_s(found)
    layer, byte = _line(rows.backward_s - backward, work.gradient_bytes, rows.backward_s)
    return replace(found, shard_layer_s=layer, shard_s_per_byte=byte)


def _with_buckets(rows: TimedLayers, found: Coefficients) -> Coefficients:
    _, backward = rows.own_s(found)
    size = rows.work.gradient_bytes
    bucket, byte = _shares(np.column_stack([buckets_of(size), size]), rows.backward_s - backward,
                           rows.backward_s)
    return replace(found, bucket_s=bucket, bucket_s_per_byte=byte)


def _scale_and_host(measured: Floats, kernel: Floats, launches: Floats, on_cpu: bool
                    ) -> tuple[float, float]:
    """Return the scale of the kernels and the host's seconds per launch that err least.

    The mean absolute error of the logarithms is what is made small: one slow timing then bends
    nothing.
    """
    from scipy.optimize import minimize

    join, ratio = _join(on_cpu), np.median(measured / kernel)
    per_launch = np.median(measured / launches)

    def error(logs: NDArray[np.float64]) -> float:
        scale, host = np.exp(logs)
        return float(np.mean(np.abs(np.log(join(scale * kernel, host * launches) / measured))))

    starts = [np.log([ratio * share, per_launch * other + 1e-12])
              for share, other in ((1.0, 1e-3), (0.8, 0.2), (0.5, 0.5))]
    found = min((minimize(error, start, method="Nelder-Mead", options={"xatol": 1e-4})
                 for start in starts), key=lambda one: float(one.fun))
    scale, host = np.exp(found.x)
    return float(scale), float(host)


def _line(rest: Floats, size: Floats, measured: Floats) -> list[float]:
    """Return (constant, per byte), neither below 0, of what is left of the measured times."""
    return _shares(np.column_stack([np.ones_like(size), size]), rest, measured)


def _shares(columns: Floats, rest: Floats, measured: Floats) -> list[float]:
    """Return the weight of each column, none below 0, whose sum is nearest to ``rest``.

    Errors count relative to ``measured``.
    """
    from scipy.optimize import nnls

    found, _ = nnls(columns / measured[:, None], rest / measured)
    return [float(one) for one in found]
