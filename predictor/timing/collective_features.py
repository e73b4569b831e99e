"""What a collective and its network look like to the learned model: columns of float32.

The columns describe the message, the group and the links, never a product or a machine's name.
Much of what a library does with a size (algorithm, protocol, chunks) shows in how the analytic time
bends there, so its shares and slopes are columns too: between two measured sizes they move with the
physics. Rates of links come in through the analytic time and the share of them that is used only:
as columns of their own they tell machines apart, and the model is worse on machines it never saw
(experiments/collectives_learned).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from predictor.lowering.tables import CollectiveKind, CollectiveTable, Floats, NetworkTable
from predictor.timing.collective_links import Links
from predictor.timing.collectives import collective_times

Matrix = NDArray[np.float32]

_KINDS = tuple(f"is_{kind.name.lower()}" for kind in CollectiveKind)
COLLECTIVE_FEATURES: tuple[str, ...] = (
    "bytes", "bytes_per_rank", "ranks", "ranks_per_domain", "domains", *_KINDS,
    "intra_kind", "intra_reach", "domain", "inter_kind", "generation", "analytic_s", "latency_s",
    "latency_share", "bandwidth_share", "over_crossing", "slope_up", "slope_down", "bus_to_link")
"""Sizes and times are base-2 logarithms. What a group does not use is NaN: links inside the domain
for one rank per domain, adapters for a single domain."""
NETWORK_FEATURES = ("generation", "intra_kind", "inter_kind")
"""Those that tell kinds of network apart: a combination never learned from is extrapolation."""
_LEAST_BYTES, _MOST_BYTES = 1.0, 2.0**40
"""Messages so small and so large that only latency and only bandwidth count."""
_TINY = 1e-30


def collective_features(
    table: CollectiveTable, networks: NetworkTable, analytic_s: Floats
) -> Matrix:
    """Return the features of every row, shape (rows, len(COLLECTIVE_FEATURES)).

    Parameters
    ----------
    table, networks
        The collectives and the networks that they run on.
    analytic_s
        Shape (rows,): :func:`predictor.timing.collectives.collective_times` of the table.
    """
    found = (_message(table) | _links(table, networks)
             | _physics(table, networks, np.maximum(analytic_s, _TINY)))
    matrix = np.empty((len(table), len(COLLECTIVE_FEATURES)), dtype=np.float32)
    for column, name in enumerate(COLLECTIVE_FEATURES):
        matrix[:, column] = found[name]
    return matrix


def _log(values: Floats) -> Floats:
    return np.asarray(np.log2(np.maximum(values, _TINY)))


def _message(table: CollectiveTable) -> dict[str, Floats]:
    ranks = np.maximum(table.group_size, 1).astype(np.float64)
    found = {
        "bytes": _log(np.maximum(table.bytes, _LEAST_BYTES)),
        "bytes_per_rank": _log(np.maximum(table.bytes / ranks, _LEAST_BYTES / ranks)),
        "ranks": _log(ranks), "ranks_per_domain": _log(table.ranks_per_domain.astype(np.float64)),
        "domains": _log(table.domains.astype(np.float64))}
    return found | {f"is_{kind.name.lower()}": (table.kind == kind).astype(np.float64)
                    for kind in CollectiveKind}


def _links(table: CollectiveTable, networks: NetworkTable) -> dict[str, Floats]:
    links = Links(table, networks)

    def inside(values: Floats) -> Floats:
        return np.where(links.local > 1, values, np.nan)

    def outside(values: Floats) -> Floats:
        return np.where(links.spread, values, np.nan)

    return {
        "intra_kind": inside(links.up_kind.astype(np.float64)),
        "intra_reach": inside(links.up_rate / np.maximum(links.up_raw, 1.0)),
        "domain": inside(_log(links.domain)),
        "inter_kind": outside(links.out_kind.astype(np.float64)),
        "generation": links.generation.astype(np.float64),
    }


def _physics(table: CollectiveTable, networks: NetworkTable, analytic_s: Floats
             ) -> dict[str, Floats]:
    """Shares of latency and bandwidth in the analytic time, and how it grows around the size."""
    def at(size: Floats | float) -> Floats:
        sizes = np.broadcast_to(np.asarray(size, dtype=np.float64), analytic_s.shape)
        return np.maximum(collective_times(replace(table, bytes=sizes), networks), _TINY)

    size = np.maximum(table.bytes, _LEAST_BYTES)
    latency = at(_LEAST_BYTES)
    per_byte = at(_MOST_BYTES) / _MOST_BYTES
    transfer = per_byte * size
    ranks = np.maximum(table.group_size, 2)
    passes = np.where(table.kind == CollectiveKind.ALL_REDUCE, 2.0, 1.0)
    whole = np.isin(table.kind, [CollectiveKind.BROADCAST, CollectiveKind.SEND_RECV])
    bus = passes * np.where(whole, 1.0, 1 - 1 / ranks) * size / analytic_s
    network = table.network
    link = np.where(table.domains > 1, networks.inter_bytes_per_s[network],
                    networks.intra_bytes_per_s[network])
    return {
        "analytic_s": _log(analytic_s), "latency_s": _log(latency),
        "latency_share": latency / analytic_s, "bandwidth_share": transfer / analytic_s,
        "over_crossing": _log(transfer) - _log(latency),
        "slope_up": _log(at(2 * size)) - _log(analytic_s),
        "slope_down": _log(analytic_s) - _log(at(size / 2)),
        "bus_to_link": _log(bus / np.maximum(link, 1.0)),
    }
