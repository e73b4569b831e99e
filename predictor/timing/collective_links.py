"""Rates that the ranks of a group reach together, inside their domain and between domains."""

from __future__ import annotations

import numpy as np

from predictor.lowering.tables import CollectiveTable, Floats, NetworkTable
from predictor.timing.protocols import MESH, PCIE, SCALE_OUT_SHARE, SCALE_UP_SHARE, XGMI

QUAD = 4
"""GPUs that point-to-point NVLinks connect completely (DGX-1 quads, four-GPU nodes)."""
PCIE_SHARE = 0.61
"""Of a PCIe link's rate, by a pair of GPUs (L40S and RTX PRO 6000, 4 and 5)."""
PCIE_CROWDING = 0.5
"""Further ranks share host bridges and the link between sockets: the rate falls like a root."""
CONGESTION = 0.02
"""Relative loss of scale-out rate with every doubling of the domains beyond two."""


class Links:
    """The table's columns as floats, with rates. Every array has shape (rows,)."""

    def __init__(self, table: CollectiveTable, networks: NetworkTable) -> None:
        network = table.network
        self.kind = table.kind
        self.bytes = np.maximum(np.asarray(table.bytes, dtype=np.float64), 0.0)
        self.ranks = np.maximum(table.group_size, 2).astype(float)
        self.domains = np.clip(table.domains, 1, self.ranks).astype(float)
        self.local = np.clip(table.ranks_per_domain, 1, self.ranks).astype(float)
        self.spread = self.domains > 1
        self.generation = networks.generation[network]
        self.up_kind = np.minimum(networks.intra_kind[network], PCIE)
        self.out_kind = networks.inter_kind[network]
        self.out_latency_s = networks.inter_latency_s[network]
        self.up_raw = networks.intra_bytes_per_s[network]
        self.domain = np.maximum(networks.domain[network], 1).astype(float)
        self.up_rate = self.up_raw * self._reach()
        share = SCALE_OUT_SHARE[self.out_kind] / (
            1 + CONGESTION * np.log2(np.maximum(self.domains / 2, 1.0)))
        per_gpu = networks.inter_bytes_per_s[network] * share
        adapter = np.maximum(networks.nic_bytes_per_s[network] * share, per_gpu)
        siblings = np.maximum(table.concurrent, 1).astype(float)
        self.out_rate = np.minimum(per_gpu * self.domain / siblings, adapter * self.local)
        """Of all members in one domain together, beside their sibling groups."""

    def _reach(self) -> Floats:
        """Share of one GPU's links that a group inside the domain uses, payload only.

        A switch serves any group. A mesh has links only between pairs: two of eight GPUs that
        xGMI connects see one link of seven. PCIe crowds with every rank.
        """
        members = self.local
        share = SCALE_UP_SHARE[self.generation]
        xgmi = (members - 1) / np.maximum(np.minimum(self.domain, 8) - 1, 1)
        quad = (members - 1) / np.maximum(np.minimum(self.domain, QUAD) - 1, 1)
        pcie = PCIE_SHARE * (2 / np.maximum(members, 2)) ** PCIE_CROWDING
        reach = np.select(
            [self.up_kind == XGMI, self.up_kind == MESH, self.up_kind == PCIE],
            [share * np.minimum(xgmi, 1.0), share * np.minimum(quad, 1.0), pcie], share)
        return np.asarray(np.where(members > 1, reach, share))

    def ring_rate(self) -> Floats:
        """Bus bandwidth of a large ring: the slower of the links it runs over."""
        inside = np.where(self.local > 1, self.up_rate, np.inf)
        return np.asarray(np.where(self.spread, np.minimum(inside, self.out_rate), self.up_rate))
