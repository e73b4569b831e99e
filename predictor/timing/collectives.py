"""Seconds of every collective: the fastest algorithm and protocol, as NCCL's tuner picks them."""

from __future__ import annotations

import numpy as np

from predictor.lowering.tables import (
    CollectiveKind,
    CollectiveTable,
    Floats,
    Ints,
    NetworkTable,
)
from predictor.timing.protocols import (
    ALL_TO_ALL_SHARE,
    MESH,
    NVLS_FROM,
    NVLS_LATENCY_S,
    NVLS_SHARE,
    PCIE,
    PROTOCOLS,
    SCALE_OUT_SHARE,
    SCALE_UP_SHARE,
    SEND_RECV_SHARE,
    SWITCHED,
    XGMI,
)

MESH_PEERS = 7.0
"""Other GPUs of a fully connected node of eight."""
PEER_MESSAGE_S = np.array([0.6e-6, 1.5e-6])
"""Cost of one more peer in an all-to-all, inside and outside the domain."""
FEW_RANKS_LOSS = 0.2
"""Relative loss of a group of two: fewer channels are opened; it halves with every doubling."""
HIERARCHY_COST = 0.9
"""Share of the scale-up rate left when a ring also feeds the adapters."""
CONGESTION = 0.02
"""Relative loss of scale-out rate with every doubling of the domains beyond two."""
SMALL_RING_BYTES = 16.0 * 2**20
"""Message at which a ring reaches half of what it gains from pipelining more chunks."""
PIPELINE_GAIN = 0.6


def collective_times(table: CollectiveTable, networks: NetworkTable) -> Floats:
    """Return the seconds of every row of ``table``, shape (rows,); 0 for groups of one rank."""
    links = _Links(table, networks)
    ring, tree = links.ring_s(), links.tree_s()
    reduce_s = np.minimum(np.minimum(ring, tree), links.nvls_s())
    choices = {
        CollectiveKind.ALL_REDUCE: reduce_s, CollectiveKind.ALL_GATHER: ring,
        CollectiveKind.REDUCE_SCATTER: ring, CollectiveKind.BROADCAST: ring,
        CollectiveKind.ALL_TO_ALL: links.all_to_all_s(),
        CollectiveKind.SEND_RECV: links.send_recv_s(),
    }
    seconds = np.zeros(len(table))
    for kind, times in choices.items():
        chosen = table.kind == kind
        seconds[chosen] = times[chosen]
    return np.where((table.group_size > 1) & (table.bytes > 0), seconds, 0.0)


class _Links:
    """Rates and step counts that the algorithms share. Every array has shape (rows,)."""

    def __init__(self, table: CollectiveTable, networks: NetworkTable) -> None:
        network = table.network
        self.kind: Ints = table.kind
        self.bytes = table.bytes.astype(float)
        self.ranks = np.maximum(table.group_size, 1).astype(float)
        self.local = np.maximum(table.ranks_per_domain, 1).astype(float)
        self.domains = np.maximum(table.domains, 1).astype(float)
        self.spread = self.domains > 1
        self.concurrent = np.maximum(table.concurrent, 1).astype(float)
        self.generation = networks.generation[network]
        self.link = networks.intra_kind[network]
        self.up_rate = networks.intra_bytes_per_s[network] * self._topology_share()
        congestion = 1 + CONGESTION * np.maximum(0.0, np.log2(self.domains) - 1)
        self.adapter = networks.inter_bytes_per_s[network] / congestion
        self.one_adapter = networks.nic_bytes_per_s[network] / congestion
        self.domain_size = networks.domain[network].astype(float)
        self.up_extra_s = networks.intra_latency_s[network]
        self.out_extra_s = networks.inter_latency_s[network]

    def _topology_share(self) -> Floats:
        """Share of one GPU's links that a ring inside the domain reaches.

        A switch serves any group. In a mesh a group uses only the links between its members. On
        PCIe every further rank adds traffic to the same host bridge.
        """
        base = SCALE_UP_SHARE[self.generation] * (1 - FEW_RANKS_LOSS * (2 / np.maximum(self.local, 2)))
        mesh = np.minimum(1.0, (self.local - 1) / MESH_PEERS)
        part = np.where(self.link == XGMI, mesh, np.where(
            self.link == MESH, np.maximum(mesh, 1 / 3), 1.0))
        crowded = (2.0 / np.maximum(self.local, 2.0)) ** 1.3
        return np.maximum(base * np.where(self.link == PCIE, crowded, part), 1e-3)

    def _rate(self) -> Floats:
        """Bus bandwidth of a large ring."""
        out = SCALE_OUT_SHARE * self.local * self.adapter
        inside = self.up_rate * np.where(self.spread, HIERARCHY_COST, 1.0)
        only_out = self.local == 1
        both = np.where(only_out, out, np.minimum(inside, out))
        return np.asarray(np.where(self.spread, both, inside))

    def _volume(self) -> Floats:
        """Bytes that pass each rank, by the bus-bandwidth convention of nccl-tests."""
        passes = np.where(self.kind == CollectiveKind.ALL_REDUCE, 2.0, 1.0)
        share = np.where(self.kind == CollectiveKind.BROADCAST, 1.0, (self.ranks - 1) / self.ranks)
        return passes * share * self.bytes

    def _ramp(self) -> Floats:
        """Larger messages fill the pipeline of chunks better: rates still rise past 512 MiB."""
        return np.asarray(1 + PIPELINE_GAIN * SMALL_RING_BYTES / (self.bytes + SMALL_RING_BYTES))

    def ring_s(self) -> Floats:
        """Each rank passes its share round: n - 1 steps, twice for an all-reduce."""
        passes = np.where(self.kind == CollectiveKind.ALL_REDUCE, 2.0, 1.0)
        out = np.where(self.spread, passes * self.domains - 1, 0.0)
        up = np.maximum(passes * (self.ranks - 1) - out, 0.0)
        return self._fastest(up, out, self._volume() / self._rate() * self._ramp())

    def tree_s(self) -> Floats:
        """Up and down a double binary tree over domains, a chain inside each."""
        up = 2.0 * (self.local - 1)
        out = np.where(self.spread, 2.0 * np.log2(np.maximum(self.domains, 2.0)), 0.0)
        slower = np.where(self.spread, 1.05, 1.25)
        return self._fastest(up, out, slower * self._volume() / self._rate() * self._ramp())

    def nvls_s(self) -> Floats:
        """Sum in the NVLink switch; across domains a tree carries one share per adapter."""
        share = NVLS_SHARE[self.generation]
        able = (self.link == SWITCHED) & (share > 0) & (self.local >= NVLS_FROM)
        base = SCALE_UP_SHARE[self.generation]
        inside = self.up_rate / base * np.maximum(share, 1e-9)
        out = SCALE_OUT_SHARE * self.local * self.adapter
        rate = np.where(self.spread, np.minimum(inside, out), inside)
        hops = np.where(self.spread, 2 * np.log2(np.maximum(self.domains, 2.0)), 0.0)
        seconds = NVLS_LATENCY_S + hops * PROTOCOLS[2].scale_out_hop_s \
            + self._volume() / rate * self._ramp()
        return np.asarray(np.where(able, seconds, np.inf))

    def _fastest(self, up: Floats, out: Floats, transfer_s: Floats) -> Floats:
        best = np.full(len(self.bytes), np.inf)
        for protocol in PROTOCOLS:
            seconds = (protocol.base_s + up * protocol.scale_up_hop_s
                       + out * protocol.scale_out_hop_s + transfer_s / protocol.share)
            best = np.minimum(best, seconds)
        return best

    def all_to_all_s(self) -> Floats:
        """Direct messages to every peer; what leaves the domain uses one adapter per GPU."""
        peers_up, peers_out = self.local - 1, self.ranks - self.local
        piece = self.bytes / self.ranks
        inside = peers_up * piece / self.up_rate
        outside = peers_out * piece / (ALL_TO_ALL_SHARE * self.adapter)
        start = PROTOCOLS[2].base_s + peers_up * PEER_MESSAGE_S[0] + peers_out * PEER_MESSAGE_S[1]
        return np.asarray(start + np.where(self.spread, np.maximum(inside, outside), inside))

    def send_recv_s(self) -> Floats:
        """One message between two ranks; neighbours on the same node share its adapters."""
        inside = self.up_rate
        node = self.adapter * self.domain_size
        outside = SEND_RECV_SHARE * np.minimum(self.one_adapter, node / self.concurrent)
        rate = np.where(self.spread, outside, inside)
        start = PROTOCOLS[2].base_s + np.where(self.spread, self.out_extra_s + 6e-6,
                                               self.up_extra_s)
        return np.asarray(start + self.bytes / rate)
