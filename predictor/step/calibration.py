"""What one machine was measured to do beside its kernels: coefficients that a campaign fits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, get_args

import numpy as np

from predictor.lowering.batch import Batch, code
from predictor.lowering.tables import Columns, Floats
from predictor.spec.errors import InputError, Problem
from predictor.spec.job import TrainingJob
from predictor.spec.vocabulary import Implementation
from predictor.timing.overlap import SLOWDOWN

SCHEMA_VERSION = 1
MOST = 1e3
"""Of a coefficient: a scale or seconds beyond it are a slip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """How a machine differs from what the predictor says of it. 1 and 0 change nothing.

    Host seconds are per kernel that is launched, as in :mod:`predictor.lowering.flavour`. They
    hide behind the device where there is one, and add where the host itself computes.
    """

    kernel_forward: float = 1.0
    """Measured over predicted time of a layer's kernels."""
    kernel_backward: float = 1.0
    host_forward_s: float = 0.0
    """To launch one kernel: Python, dispatcher, autograd graph."""
    host_backward_s: float = 0.0
    tensor_forward_s: float = 0.0
    """On top, per kernel, where tensor parallelism splits the operands (DTensor's dispatch)."""
    tensor_backward_s: float = 0.0
    tensor_collectives: float = 1.0
    """Measured over predicted time of tensor parallelism's collectives, with the copies that
    bring their operands in order."""
    gather_layer_s: float = 0.0
    """Each time that the parameters of a layer are gathered (ZeRO-3): hooks and allocations."""
    gather_s_per_byte: float = 0.0
    """The same per byte of the gathered parameters: copies out of the gathered buffer."""
    shard_layer_s: float = 0.0
    """Each time that the gradients of a layer are scattered (ZeRO-3)."""
    shard_s_per_byte: float = 0.0
    bucket_s: float = 0.0
    """Each bucket of gradients that is all-reduced: hooks and waiting."""
    bucket_s_per_byte: float = 0.0
    """Per byte of all-reduced gradients: copies into buckets and out of them."""
    overlap_slowdown: float = SLOWDOWN
    """How much communication and computation stretch while they run side by side: from 1, they do
    not touch each other, to 2, nothing is gained."""


NAMES = tuple(one.name for one in fields(Coefficients))

SCALES = ("kernel_forward", "kernel_backward", "tensor_collectives")
"""Factors, which are above 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Coefficients of one GPU and implementation, fitted beside one predictor."""

    gpu: str
    """Name in the catalogue. Jobs on other GPUs are predicted as without a calibration."""
    implementation: str
    """Of the layers: what the coefficients of kernels, hosts and layers hold for. Overlap is the
    machine's."""
    predictor: str
    """Digest of the predictor whose times are corrected, or ``analytic``."""
    coefficients: Coefficients
    fitted: Mapping[str, Any] = field(default_factory=dict)
    """What it was fitted to, for people: rows and their errors before and after."""

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Return the text of a calibration file."""
        return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self)}, indent=2,
                          sort_keys=True) + "\n"


def parse_calibration(text: str) -> Calibration:
    """Return the calibration in a JSON text.

    Raises
    ------
    InputError
        Listing every absent, unknown or impossible entry.
    """
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError.of("calibration-json", f"the calibration is no JSON: {error}",
                            "give the file that predict-time calibrate wrote") from None
    problems = _problems(given)
    if problems:
        raise InputError(problems)
    content = {name: value for name, value in given.items() if name != "schema_version"}
    return Calibration(**content | {"coefficients": Coefficients(**given["coefficients"])})


def _problems(given: Any) -> list[Problem]:
    if not isinstance(given, dict) or not isinstance(given.get("coefficients"), dict):
        return [Problem("calibration-keys", "a calibration is an object with coefficients",
                        "give the file that predict-time calibrate wrote")]
    if given.get("schema_version") != SCHEMA_VERSION:
        return [Problem("calibration-version", f"schema_version is {SCHEMA_VERSION} and got "
                        f"{given.get('schema_version')!r}", "calibrate again", "schema_version")]
    names = [one.name for one in fields(Calibration)]
    found = [Problem("calibration-keys", f"there is no key {name!r}", "remove it", str(name))
             for name in given if name not in (*names, "schema_version")]
    found += [Problem("calibration-keys", f"{name} is absent or no text", "calibrate again", name)
              for name in ("gpu", "implementation", "predictor")
              if not isinstance(given.get(name), str)]
    if given.get("implementation") not in get_args(Implementation):
        found.append(Problem("calibration-keys", f"there is no implementation "
                             f"{given.get('implementation')!r}", "calibrate again",
                             "implementation"))
    for name, value in given["coefficients"].items():
        found += _value_problems(name, value)
    return found


def _value_problems(name: str, value: Any) -> list[Problem]:
    where = f"coefficients.{name}"
    if name not in NAMES:
        return [Problem("calibration-keys", f"there is no coefficient {name!r}",
                        f"choose from {', '.join(NAMES)}", where)]
    least, most = (1.0, 2.0) if name == "overlap_slowdown" else (0.0, MOST)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and least <= value <= most and (value > 0 or name not in SCALES):
        return []
    return [Problem("calibration-value", f"{name} is a number from {least:g} to {most:g} and got "
                    f"{value!r}", "calibrate again", where)]


@dataclass(frozen=True, slots=True)
class CoefficientColumns(Columns):
    """The coefficients of every row of a batch. All arrays have shape (rows,)."""

    host_known: Floats
    """1 where host times were measured, 0 where the implementation's usual ones stand."""
    kernel_forward: Floats
    kernel_backward: Floats
    host_forward_s: Floats
    host_backward_s: Floats
    tensor_forward_s: Floats
    tensor_backward_s: Floats
    tensor_collectives: Floats
    gather_layer_s: Floats
    gather_s_per_byte: Floats
    shard_layer_s: Floats
    shard_s_per_byte: Floats
    bucket_s: Floats
    bucket_s_per_byte: Floats
    overlap_slowdown: Floats

    @classmethod
    def of(cls, batch: Batch, jobs: Sequence[TrainingJob],
           calibration: Calibration | None) -> CoefficientColumns:
        """Return what holds for each row; ``jobs`` has one entry per row of the batch."""
        usual = Coefficients()
        own = calibration.coefficients if calibration else usual
        machine = np.zeros(len(batch), dtype=bool)
        layers = machine
        if calibration is not None:
            machine = np.array([job.cluster.gpu.name == calibration.gpu for job in jobs])
            layers = machine & (batch.job.implementation
                                == code("implementation", calibration.implementation))
        columns = {name: np.where(machine if name == "overlap_slowdown" else layers,
                                  getattr(own, name), getattr(usual, name)) for name in NAMES}
        return cls(host_known=layers.astype(float), **columns)
