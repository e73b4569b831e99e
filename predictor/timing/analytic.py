"""The analytic timer: physics only, nothing learned."""

from __future__ import annotations

from dataclasses import dataclass

from predictor.lowering.tables import (
    CollectiveTable, Floats, GpuTable, KernelTable, NetworkTable,
)
from predictor.timing.collectives import collective_times
from predictor.timing.kernels import kernel_times


@dataclass(frozen=True, slots=True)
class AnalyticTimer:
    """Rooflines for kernels, segmented alpha-beta for collectives."""

    provenance: str = "analytic"

    def kernels(self, table: KernelTable, gpus: GpuTable) -> Floats:
        """Return the device seconds of every row."""
        return kernel_times(table, gpus)

    def collectives(self, table: CollectiveTable, networks: NetworkTable) -> Floats:
        """Return the seconds of every row."""
        return collective_times(table, networks)
