"""Seconds of every collective: the fastest algorithm and protocol, as NCCL's tuner picks them.

Every candidate has a start ``a`` (base and hop latencies) and a transfer time ``b`` (bytes over
rate). Chunks flow through its steps as through a pipeline, and the best number of chunks gives
``a + b + 2 sqrt(a b)`` at most (Sanders, Speck, Traeff, Parallel Computing 35, 2009); libraries
with several channels pay a part of the last term. That part is why bus bandwidth still rises past
512 MiB.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from predictor.lowering.tables import (
    LINK_KINDS, CollectiveKind, CollectiveTable, Floats, NetworkTable,
)
from predictor.timing.collective_links import Links
from predictor.timing.protocols import (
    ALL_TO_ALL_SHARE, AMD, HOP_SCALE, LL, LL128, LL128_SHARE, LL_RATE, LL_SHARE, NVLS_LATENCY_S,
    NVLS_SHARE, NVLS_TREE_HOP_S, ORDERED, OUT_RING_HOP_S, OUT_TREE_HOP_S, RING_BASE_S,
    SCALE_UP_SHARE, SIMPLE, SWITCHED, TREE_BASE_S, TREE_SHARE, UP_RING_HOP_S, UP_TREE_HOP_S,
    VERBS_LATENCY_S, hop_s,
)

BoolArray = NDArray[np.bool_]
IB = LINK_KINDS.index("infiniband")
CHUNKING = np.array([0.2, 0.4, 0.7])
"""Share of ``sqrt(a b)`` paid by protocol, inside a domain (rings of 2 to 8 A100 and H100)."""
CHUNKING_OUT = np.array([0.2, 0.3, 0.7])
"""The same between domains."""
OWN_SHARE_RATE = 2.2
"""A rank moves its own share through the same channels: rate over that of its links."""
PEER_S = np.array([0.6e-6, 5e-6])
"""One more peer of an all-to-all, inside and outside the domain."""
SEND_RECV_SHARE = 0.87
"""Of an adapter's payload rate, by one pair: two channels per peer (NVIDIA/nccl issue 1424)."""
SEND_RECV_CONGESTION = 0.31
"""Loss with every doubling of the domains beyond two: 43 of 50 GB/s at 2 nodes, 25 at 10."""
ALL_TO_ALL_CONGESTION = np.where(np.array(LINK_KINDS) == "slingshot", 0.16, 0.0)
"""The same for all-to-all: 5.4 of 12.5 GB/s at 2 nodes of Polaris, 2.5 at 256."""


def collective_times(table: CollectiveTable, networks: NetworkTable) -> Floats:
    """Return the seconds of every row of ``table``, shape (rows,).

    Groups of one rank and empty messages take no time. ``table.bytes`` follows nccl-tests.
    """
    links = Links(table, networks)
    ring = reduce(np.minimum, [_ring_s(links, protocol) for protocol in (LL, LL128, SIMPLE)])
    tree = reduce(np.minimum, [_tree_s(links, protocol) for protocol in (LL, LL128, SIMPLE)])
    seconds = np.select(
        [table.kind == CollectiveKind.ALL_REDUCE, table.kind == CollectiveKind.ALL_TO_ALL,
         table.kind == CollectiveKind.SEND_RECV],
        [reduce(np.minimum, [ring, tree, _nvls_s(links)]), _all_to_all_s(links),
         _send_recv_s(links)], ring)
    return np.where((table.group_size > 1) & (table.bytes > 0), seconds, 0.0)


def _passes(links: Links) -> Floats:
    return np.where(links.kind == CollectiveKind.ALL_REDUCE, 2.0, 1.0)


def _pipelined_s(start_s: Floats, transfer_s: Floats, links: Links, protocol: int) -> Floats:
    part = np.where(links.spread, CHUNKING_OUT[protocol], CHUNKING[protocol])
    return np.asarray(start_s + transfer_s + part * np.sqrt(start_s * transfer_s))


def _up_hop_s(table: Floats, links: Links, protocol: int) -> Floats:
    return np.asarray(hop_s(table, links.up_kind, protocol) * HOP_SCALE[links.generation])


def _available(links: Links, protocol: int) -> BoolArray:
    """Return where a protocol exists: LL128 needs NVLink or whole 128-byte stores."""
    if protocol != LL128:
        return np.ones(len(links.bytes), dtype=np.bool_)
    return np.asarray(~AMD[links.generation] & (~links.spread | ORDERED[links.out_kind]))


def _out_hop_s(table: Floats, links: Links, protocol: int) -> Floats:
    extra = np.maximum(links.out_latency_s - VERBS_LATENCY_S, 0.0)
    return hop_s(table, links.out_kind, protocol) + extra


def _protocol_rate(rate: Floats, links: Links, protocol: int) -> Floats:
    """Bus bandwidth that a protocol leaves of ``rate``."""
    if protocol == LL:
        column = np.where(links.spread, np.where(links.domains > 2, 2, 1), 0)
        return np.minimum(LL_SHARE * rate, LL_RATE[links.generation, column])
    return rate * (LL128_SHARE if protocol == LL128 else 1.0)


def _own_share_s(links: Links) -> Floats:
    own = np.where(links.kind == CollectiveKind.BROADCAST, 0.0, links.bytes / links.ranks)
    return np.asarray(own / (OWN_SHARE_RATE * links.up_raw))


def _ring_s(links: Links, protocol: int) -> Floats:
    """Each rank passes its share round: n - 1 steps, twice for an all-reduce."""
    passes = _passes(links)
    out = np.where(links.spread, passes * (links.domains - 1), 0.0)
    up = passes * (links.ranks - 1) - out
    start = (RING_BASE_S[protocol] + up * _up_hop_s(UP_RING_HOP_S, links, protocol)
             + out * _out_hop_s(OUT_RING_HOP_S, links, protocol))
    share = np.where(links.kind == CollectiveKind.BROADCAST, 1.0, 1 - 1 / links.ranks)
    rate = _protocol_rate(links.ring_rate(), links, protocol)
    transfer = passes * share * links.bytes / rate + _own_share_s(links)
    seconds = _pipelined_s(start, transfer, links, protocol)
    return np.asarray(np.where(_available(links, protocol), seconds, np.inf))


def _tree_s(links: Links, protocol: int) -> Floats:
    """Up and down a double binary tree over domains, a chain inside each (all-reduce).

    NCCL rates the tree at 0.92 of the ring even for two domains, where its adapters carry half as
    much, so the ring takes over for large messages.
    """
    up = 2.0 * (links.local - 1)
    out = np.where(links.spread, 2.0 * np.log2(links.domains), 0.0)
    start = (TREE_BASE_S[protocol] + up * _up_hop_s(UP_TREE_HOP_S, links, protocol)
             + out * _out_hop_s(OUT_TREE_HOP_S, links, protocol))
    volume = 2 * (1 - 1 / links.ranks) * links.bytes
    rate = _protocol_rate(TREE_SHARE * links.ring_rate(), links, protocol)
    seconds = _pipelined_s(start, volume / rate + _own_share_s(links), links, protocol)
    return np.asarray(np.where(_available(links, protocol), seconds, np.inf))


def _tree_out_s(links: Links) -> Floats:
    """Each of the two trees carries half the bytes up and down. A domain is a leaf of one and an
    inner node of the other: with two domains its adapters send the bytes once, with four or more
    twice (half up, half down to each of two children, half up as a leaf)."""
    load = np.where(links.spread, np.minimum(2.0, links.domains / 2), 0.0)
    return np.asarray(load * links.bytes / links.out_rate)


def _nvls_s(links: Links) -> Floats:
    """Summed in the NVLink switch: each rank reads a share of the sum and multicasts it."""
    share = NVLS_SHARE[links.generation] * SCALE_UP_SHARE[links.generation]
    able = (links.up_kind == SWITCHED) & (share > 0) & (links.local > 1)
    inside = (1 + 1 / links.local) * links.bytes / np.maximum(share * links.up_raw, 1e-30)
    hops = np.where(links.spread, 2 * np.log2(links.domains), 0.0)
    extra = np.maximum(links.out_latency_s - VERBS_LATENCY_S, 0.0)
    start = NVLS_LATENCY_S + RING_BASE_S[SIMPLE] * links.spread + hops * (NVLS_TREE_HOP_S + extra)
    seconds = _pipelined_s(start, np.maximum(inside, _tree_out_s(links)), links, SIMPLE)
    return np.asarray(np.where(able, seconds, np.inf))


def _all_to_all_s(links: Links) -> Floats:
    """Direct messages to every peer; what leaves the domain uses one adapter per GPU."""
    peers_up, peers_out = links.local - 1, links.ranks - links.local
    piece = links.bytes / links.ranks
    per_peer = PEER_S[1] + _out_hop_s(OUT_TREE_HOP_S, links, LL) - OUT_TREE_HOP_S[IB, LL]
    start = RING_BASE_S[SIMPLE] + peers_up * PEER_S[0] + peers_out * per_peer
    inside = peers_up * piece / links.up_rate + _own_share_s(links)
    crowd = 1 + ALL_TO_ALL_CONGESTION[links.out_kind] * np.log2(np.maximum(links.domains / 2, 1))
    rate = ALL_TO_ALL_SHARE[links.out_kind] / crowd * links.out_rate / links.local
    transfer = np.where(links.spread, np.maximum(inside, peers_out * piece / rate), inside)
    return _pipelined_s(start, transfer, links, SIMPLE)


def _send_recv_s(links: Links) -> Floats:
    """One message between two ranks; neighbours on the same node share its adapters."""
    crowd = 1 + SEND_RECV_CONGESTION * np.log2(np.maximum(links.domains / 2, 1))
    outside = SEND_RECV_SHARE / crowd * links.out_rate / links.local
    hop = np.where(links.spread, _out_hop_s(OUT_RING_HOP_S, links, SIMPLE),
                   _up_hop_s(UP_RING_HOP_S, links, LL))
    return np.asarray(RING_BASE_S[LL] + hop
                      + links.bytes / np.where(links.spread, outside, links.up_rate))
