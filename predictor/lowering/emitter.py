"""Collects the kernels and collectives of the parts of many rows, column by column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from predictor.lowering.batch import MODULES, Batch, code
from predictor.lowering.flavour import FlavourColumns
from predictor.lowering.groups import Group
from predictor.lowering.parts import NUM_PARTS, Part
from predictor.lowering.tables import (
    CollectiveKind, CollectiveTable, Dtype, Floats, Ints, KernelKind, KernelTable, Phase, Stream,
)

_DTYPES = {"fp32": Dtype.FP32, "tf32": Dtype.TF32, "fp16": Dtype.FP16, "bf16": Dtype.BF16,
           "fp8": Dtype.FP8, "mxfp8": Dtype.FP8, "nvfp4": Dtype.FP4}
_LINEAR_DTYPE = np.array(list(_DTYPES.values()))
_BASE_DTYPE = np.where(_LINEAR_DTYPE > Dtype.BF16, Dtype.BF16, _LINEAR_DTYPE)
DTYPE_BYTES = np.array([4.0, 4.0, 2.0, 2.0, 1.0, 0.5])


@dataclass(frozen=True, slots=True)
class Operation:
    """One kernel or collective of every row: where it belongs and how often it runs."""

    part: Part
    phase: Phase
    stream: Stream
    module: int
    """Recompute modules that cover it (see :func:`module_mask`)."""
    count: Floats
    """Shape (rows,): runs per part; 0 where a row has no such operation."""
    columns: Mapping[str, Floats | Ints | float]


@dataclass
class Emitter:
    """The operations of a batch under construction.

    Shapes are per row and per micro-batch; a count of 0 drops the operation for that row.
    """

    batch: Batch
    kernels: list[Operation] = field(default_factory=list)
    collectives: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        precision = self.batch.strategy.precision
        self.linear_dtype: Ints = _LINEAR_DTYPE[precision]
        self.base_dtype: Ints = _BASE_DTYPE[precision]
        self.element_bytes: Floats = DTYPE_BYTES[self.base_dtype]
        self.linear_bytes: Floats = DTYPE_BYTES[self.linear_dtype]
        self.flavour = FlavourColumns(self.batch)
        self.frozen = (self.batch.job.workload == code("workload", "lora")).astype(float)

    def kernel(
        self, kind: KernelKind, part: Part, phase: Phase, *, count: Floats | float = 1.0,
        module: int = 0, **columns: Floats | Ints | float,
    ) -> None:
        """Add one kernel."""
        counts = np.broadcast_to(np.asarray(count, dtype=float), (len(self.batch),))
        self.kernels.append(Operation(part, phase, Stream.COMPUTE, module, counts,
                                      {"kind": int(kind), **columns}))

    def memory(
        self, kind: KernelKind, part: Part, phase: Phase, *, elements: Floats,
        accesses: Floats | float, width: Floats | float = 1.0, launches: Floats | float = 1.0,
        count: Floats | float = 1.0, module: int = 0, element_bytes: Floats | float | None = None,
    ) -> None:
        """Add a memory-bound kernel that touches ``elements`` elements ``accesses`` times."""
        size = self.element_bytes if element_bytes is None else element_bytes
        launches_ = np.maximum(np.asarray(launches, dtype=float), 1.0)
        self.kernel(kind, part, phase, count=count, module=module, dtype=self.base_dtype,
                    m=elements / width, n=width, launches=launches_,
                    bytes=elements * accesses * size)

    def linear(
        self, part: Part, *, m: Floats, n: Floats, k: Floats, count: Floats | float = 1.0,
        module: int = 0, groups: Floats | float = 1.0, quantized: bool = True,
        kind: KernelKind = KernelKind.GEMM, adapted: bool = False,
    ) -> None:
        """Add the three GEMMs of a linear layer, their casts and gradient accumulation.

        ``m`` tokens, ``n`` outputs, ``k`` inputs of each of ``groups`` matrices. Frozen weights
        (LoRA) have no weight gradient; an ``adapted`` one has two thin matrices beside it.
        """
        if adapted and self.frozen.any():
            self._adapter(part, m=m, n=n, k=k, count=np.asarray(count, dtype=float) * self.frozen)
        dtype = self.linear_dtype if quantized else self.base_dtype
        trained = np.asarray(count, dtype=float) * (1 - self.frozen)
        shapes = ((Phase.FORWARD, m, n, k), (Phase.BACKWARD, m, k, n), (Phase.WEIGHT, n, k, m))
        accumulates = self.flavour.wgrad_accumulates
        for phase, rows, columns, depth in shapes:
            out_bytes = self.element_bytes
            if phase == Phase.WEIGHT:
                out_bytes = np.where(accumulates > 0, 8.0, self.element_bytes)
            self.kernel(
                kind, part, phase, dtype=dtype, batch=groups, m=rows, n=columns, k=depth,
                flops=2.0 * groups * rows * columns * depth,
                bytes=groups * (DTYPE_BYTES[dtype] * depth * (rows + columns)
                                + out_bytes * rows * columns),
                count=trained if phase == Phase.WEIGHT else count, module=module)
        self._accumulate(part, trained * (1 - accumulates), groups * n * k)
        if quantized:
            for phase, width in ((Phase.FORWARD, k), (Phase.BACKWARD, n)):
                self._cast(part, groups * m * width, phase, count=count, module=module)

    def _adapter(self, part: Part, *, m: Floats, n: Floats, k: Floats, count: Floats) -> None:
        """Add LoRA's products down to its rank and up again (Hu et al., arXiv 2106.09685), the
        addition to the frozen output, and the dropout of the input."""
        rank = np.maximum(self.batch.job.lora_rank, 1).astype(float)
        for width, depth in ((rank, k), (n, rank)):
            for phase, rows, columns, inner in (
                (Phase.FORWARD, m, width, depth), (Phase.BACKWARD, m, depth, width),
                (Phase.WEIGHT, width, depth, m),
            ):
                self.kernel(
                    KernelKind.GEMM, part, phase, dtype=self.base_dtype, m=rows, n=columns,
                    k=inner, flops=2.0 * rows * columns * inner, count=count,
                    bytes=self.element_bytes * (inner * (rows + columns) + rows * columns))
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            self.memory(KernelKind.ELEMENTWISE, part, phase, elements=m * n, accesses=3.0,
                        count=count)
            self.memory(KernelKind.ELEMENTWISE, part, phase, elements=m * k, accesses=2.5,
                        count=count)

    def _accumulate(self, part: Part, count: Floats, elements: Floats) -> None:
        """Add a weight gradient into the fp32 main gradient: read 2 + 4 bytes, write 4."""
        self.memory(KernelKind.ELEMENTWISE, part, Phase.WEIGHT, elements=elements, accesses=10.0,
                    element_bytes=1.0, count=count)

    def _cast(
        self, part: Part, elements: Floats, phase: Phase, *, count: Floats | float, module: int
    ) -> None:
        """Quantise an input for its two GEMMs: read 16-bit, write it and its transpose.

        Current scaling reads the input once more, for its largest magnitude.
        """
        quantised = np.asarray(count, dtype=float) * (self.linear_dtype > Dtype.BF16)
        current = self.batch.strategy.fp8_recipe == code("fp8_recipe", "current")
        traffic = self.element_bytes * np.where(current, 2.0, 1.0) + 2 * self.linear_bytes
        self.memory(KernelKind.ELEMENTWISE, part, phase, elements=elements, accesses=traffic,
                    element_bytes=1.0, count=quantised, module=module,
                    launches=np.where(current, 2.0, 1.0))

    def collective(
        self, kind: CollectiveKind, part: Part, phase: Phase, stream: Stream, *,
        group: Group, size_bytes: Floats, count: Floats | float = 1.0, module: int = 0,
    ) -> None:
        """Add one collective on ``group``; rows with a group of one rank have none."""
        counts = np.asarray(count, dtype=float) * (group.size > 1)
        self.collectives.append(Operation(part, phase, stream, module, counts, {
            "kind": int(kind), "bytes": size_bytes, "group_size": group.size,
            "ranks_per_domain": group.ranks_per_domain, "domains": group.domains,
            "stride": group.stride, "concurrent": group.concurrent}))

    def scale_collectives(self, start: int, factor: Floats) -> None:
        """Multiply the counts of the collectives added since ``start``."""
        self.collectives[start:] = [replace(op, count=op.count * factor)
                                    for op in self.collectives[start:]]

    def add_recompute(self) -> None:
        """Repeat in backward what every row recomputes, collectives included."""
        strategy = self.batch.strategy
        full = strategy.recompute == code("recompute", "full")
        selective = strategy.recompute == code("recompute", "selective")
        chosen = np.where(strategy.recompute_modules > 0, strategy.recompute_modules, 1)
        for operations in (self.kernels, self.collectives):
            again = [
                Operation(op.part, Phase.RECOMPUTE, op.stream, op.module,
                          op.count * (full | (selective & ((chosen & op.module) > 0))), op.columns)
                for op in operations
                if op.phase == Phase.FORWARD and op.part not in (Part.EMBEDDING, Part.HEAD)
            ]
            operations += again


def module_mask(*modules: str) -> int:
    """Return the bits of the recompute modules that an operation belongs to."""
    return sum(1 << MODULES.index(module) for module in modules)


_KERNEL_COLUMNS = ("kind", "dtype", "device", "batch", "m", "n", "k", "causal", "flops", "bytes",
                   "launches", "portable")
_KERNEL_DEFAULTS = {"batch": 1.0, "m": 0.0, "n": 0.0, "k": 0.0, "causal": 1.0, "flops": 0.0,
                    "bytes": 0.0, "launches": 1.0, "portable": 0.0}
_COLLECTIVE_COLUMNS = ("kind", "network", "bytes", "group_size", "ranks_per_domain", "domains",
                       "stride", "concurrent")


@dataclass(frozen=True, slots=True)
class Incidence:
    """Which unique operation runs where: one entry per (row, part, phase, stream, operation)."""

    unique: Ints
    """Row of the unique table."""
    row: Ints
    part: Ints
    phase: Ints
    stream: Ints
    count: Floats


def _held_parts(batch: Batch) -> Floats:
    """Return shape (parts, rows): 1 where the row's model can hold the part."""
    held = np.ones((NUM_PARTS, len(batch)))
    model = batch.model
    for part, present in (
        (Part.LOCAL_ATTENTION, model.sliding_window), (Part.CROSS_ATTENTION,
                                                       model.num_encoder_layers),
        (Part.ENCODER_ATTENTION, model.num_encoder_layers),
        (Part.ENCODER_MLP, model.num_encoder_layers), (Part.MOE, model.num_experts),
        (Part.MAMBA, model.mamba_num_heads), (Part.MTP, model.mtp_num_layers),
    ):
        held[part] = present > 0
    return held


def _stack(operations: list[Operation], names: tuple[str, ...], fixed: dict[str, Ints],
           held: Floats) -> tuple[Floats, Incidence]:
    """Return the values (entries, names) and incidence of all operations with a count."""
    size = held.shape[1]
    counts = np.array([op.count for op in operations]) * held[[op.part for op in operations]]
    which, row = np.nonzero(counts > 0)
    values = np.empty((len(which), len(names)))
    for position, name in enumerate(names):
        column = np.array([
            np.broadcast_to(np.asarray(
                fixed[name] if name in fixed
                else op.columns.get(name, _KERNEL_DEFAULTS.get(name, 0.0)), dtype=float), (size,))
            for op in operations])
        values[:, position] = column[which, row]
    tags = np.array([(op.part, op.phase, op.stream) for op in operations], dtype=np.int64)
    part, phase, stream = tags[which].T
    return values, Incidence(np.arange(len(which)), row, part, phase, stream, counts[which, row])


def _deduplicate(values: Floats, incidence: Incidence) -> tuple[Floats, Incidence]:
    _, first, inverse = np.unique(row_hash(values), return_index=True, return_inverse=True)
    return values[first], replace(incidence, unique=inverse.ravel())


def row_hash(values: Floats) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return a 64-bit hash of each row of ``values`` (rows, columns).

    Sorting hashes is tens of times faster than sorting rows; two of a million distinct rows
    collide with a probability below 1e-7.
    """
    bits = np.ascontiguousarray(values + 0.0, dtype=np.float64).view(np.uint64)
    mixed = np.full(len(bits), 0x9E3779B97F4A7C15, dtype=np.uint64)
    for column in bits.T:
        mixed ^= column
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def kernel_table(emitter: Emitter) -> tuple[KernelTable, Incidence]:
    """Return the distinct kernels of the emitter's rows and where each runs."""
    batch = emitter.batch
    values, incidence = _stack(emitter.kernels, _KERNEL_COLUMNS, {"device": batch.device},
                               _held_parts(batch))
    kernel_phase = np.where(incidence.phase == Phase.RECOMPUTE, Phase.FORWARD, incidence.phase)
    values = np.column_stack([values, kernel_phase])
    values, incidence = _deduplicate(values, incidence)
    columns = dict(zip((*_KERNEL_COLUMNS, "phase"), values.T, strict=True))
    whole = ("kind", "phase", "dtype", "device", "portable")
    return KernelTable(**{name: column.astype(np.int64) if name in whole else column
                          for name, column in columns.items()}), incidence


def collective_table(emitter: Emitter) -> tuple[CollectiveTable, Incidence]:
    """Return the distinct collectives of the emitter's rows and where each runs."""
    batch = emitter.batch
    values, incidence = _stack(emitter.collectives, _COLLECTIVE_COLUMNS,
                               {"network": batch.network}, _held_parts(batch))
    values, incidence = _deduplicate(values, incidence)
    columns = dict(zip(_COLLECTIVE_COLUMNS, values.T, strict=True))
    return CollectiveTable(**{name: column if name == "bytes" else column.astype(np.int64)
                              for name, column in columns.items()}), incidence
