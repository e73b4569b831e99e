"""Reads tables of measured collectives (nccl-tests columns) into the columns that timing takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from predictor.catalog import load_gpu
from predictor.datasets.collective_links import BITS, GIGA, scale_out, scale_up
from predictor.datasets.collective_schema import COLUMNS, normalise
from predictor.datasets.physical import LOST_ROWS, LOST_SERIES, LOST_SHARE
from predictor.datasets.tables import read_table, require_columns
from predictor.lowering.tables import (
    LINK_KINDS, CollectiveKind, CollectiveTable, Floats, Ints, NetworkTable, generation,
)
from predictor.spec.errors import InputError
from predictor.timing.collective_links import Links

if TYPE_CHECKING:
    import pandas as pd

Flags = NDArray[np.bool_]

_KINDS = {
    "all_reduce": CollectiveKind.ALL_REDUCE, "all_gather": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER, "alltoall": CollectiveKind.ALL_TO_ALL,
    "all_to_all": CollectiveKind.ALL_TO_ALL, "sendrecv": CollectiveKind.SEND_RECV,
    "broadcast": CollectiveKind.BROADCAST,
}
LIBRARIES = frozenset({"", "nccl", "rccl", "gloo"})
"""What training frameworks call. Kernels of inference engines only serve one size range."""
BROKEN = ("duplicate", "exceeds", "misconfigured", "wrong_results", "pathological",
          "tcp_or_default_env", "unknown")
"""Words of a flag that say that a time does not belong to the machine that the row names."""
PEAK_SLACK = 1.05
TOO_FAST = "faster than the links allow"
TOO_SLOW = "far below the links"
LEAST_LINK_SHARE = 0.25
"""Of what a group reaches over its links, by large messages. Less means that they went another way:
between nodes through sockets and the kernel's network stack, inside one through host memory because
GPUs may not reach their peers. Pairs on an adapter that ten nodes crowd still reach 0.3."""
LARGE_BYTES_PER_RANK = 2.0**24
"""From here on the links decide, not the latency of their hops."""
LEAST_LARGE_ROWS = 3
DISTURBED = "slower than larger messages"
MOST_ABOVE_LARGER = 2.0
"""Time over the least time of any larger message of the series. More holds something else, such as
the allocation of buffers; a change of algorithm with the size costs less."""
LICENCES = {
    "vidur_network": "MIT", "aiconfigurator_custom_ar": "Apache-2.0",
    "aiconfigurator_nccl": "Apache-2.0", "xxrjun_nccl_tests_cluster": "Apache-2.0",
    "mscclpp_perf": "MIT", "galvatron_hardware_configs": "Apache-2.0",
    "nvidia_dgxc_benchmarking": "Apache-2.0",
    "stas00_ml_engineering": "CC-BY-SA-4.0"}
"""SPDX licences of the sources of :data:`PUBLIC_TABLE`; the others state none."""
PUBLIC_TABLE = "collectives.parquet"
"""Name of the table that brings several sources together."""


@dataclass(frozen=True, slots=True)
class CollectiveMeasurements:
    """Measured collectives; every array has shape (rows,)."""

    table: CollectiveTable
    networks: NetworkTable
    measured_s: Floats
    ids: tuple[str, ...]
    source: tuple[str, ...]
    system: tuple[str, ...]
    licence: tuple[str, ...]
    """SPDX name, ``unknown`` where the table has none: not to be learned from."""
    nodes: Ints
    """Servers taking part; domains are smaller where NVLink bridges only pairs of GPUs."""
    refused: tuple[tuple[str, str], ...]
    """Row and reason of what is not scored."""

    def __len__(self) -> int:
        return len(self.measured_s)

    def without(self, why: np.ndarray[Any, Any]) -> Self:
        """Return the measurements with an empty reason, and refuse the others.

        ``why`` has shape (rows,), dtype object.
        """
        kept = np.flatnonzero(why == "")

        def some(words: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(words[row] for row in kept.tolist())

        gone = tuple((self.ids[row], str(why[row])) for row in np.flatnonzero(why != "").tolist())
        return replace(
            self, table=self.table.take(kept), measured_s=self.measured_s[kept],
            nodes=self.nodes[kept], ids=some(self.ids), source=some(self.source),
            system=some(self.system), licence=some(self.licence), refused=self.refused + gone)

    def refusals(self) -> dict[str, int]:
        """Return how many rows were refused for each reason."""
        return dict(Counter(why for _, why in self.refused))


def read_collectives(source: str | Path | pd.DataFrame) -> CollectiveMeasurements:
    """Return the measurements of a table and why the rest of its rows is refused.

    Refused: rows flagged as broken, collectives that training does not use, other libraries than
    NCCL and RCCL, GPUs outside the catalogue, links whose kind or rate is not stated, and times
    below what the links allow, with all of a series that is mostly so.

    Raises
    ------
    InputError
        When the table cannot be read or lacks the schema's columns.
    """
    frame = read_table(source)
    require_columns(frame, ("gpu", "collective", "bytes", "time_us", "nodes", "world_size",
                            "intra_link"), "nccl-tests runs with the machine's links")
    cells = _Cells(frame)
    why = cells.reasons()
    kept = np.flatnonzero(why == "")
    table, networks = cells.tables(kept)
    refused = np.flatnonzero(why != "")
    found = CollectiveMeasurements(
        table, networks, cells.seconds[kept], cells.text("id", kept), cells.text("source", kept),
        cells.text("system", kept),
        tuple(word or "unknown" for word in cells.text("licence", kept)),
        cells.nodes[kept].astype(np.int64),
        tuple(zip(cells.text("id", refused), why[refused].tolist(), strict=True)))
    return found.without(_impossible(found))


def tidy_collectives(source: str | Path | pd.DataFrame) -> pd.DataFrame:
    """Return the public table of several sources (``collectives.parquet``) in the tidy schema.

    Raises
    ------
    InputError
        When the table cannot be read, or has unknown columns.
    """
    frame = read_table(source)
    require_columns(frame, set(COLUMNS) - {"licence", "timing_kind"}, "measured collectives")
    name = frame["source"].astype(str)
    # Vidur sums NCCL's kernels in a profiler; nccl-tests and those like it time with events.
    kind = np.where(name == "vidur_network", "kernel", "event")
    return normalise(frame.assign(
        licence=name.map(LICENCES).fillna("unknown"), timing_kind=kind))


def learnable(found: CollectiveMeasurements) -> CollectiveMeasurements:
    """Return what a model may learn from: measurements that timed the collective on its links.

    Left out are large messages far below the rate of the links, with all of a series that is
    mostly so, and times far above those of larger messages. Such runs happen: they count in scores.
    """
    series = _series(found)
    shares = _link_share(found.table, found.networks, found.measured_s)
    large = found.table.bytes >= LARGE_BYTES_PER_RANK * found.table.group_size
    slow = large & (shares < LEAST_LINK_SHARE)
    slow |= _mostly(slow, large, series, LEAST_LARGE_ROWS)
    why = np.select([slow, _disturbed(found, series)], [TOO_SLOW, DISTURBED], "").astype(object)
    return found.without(why)


def _impossible(found: CollectiveMeasurements) -> np.ndarray[Any, Any]:
    """Return why the links exclude each time, empty where they do not; shape (rows,)."""
    fast = _least_s(found.table, found.networks) > found.measured_s * PEAK_SLACK
    lost = _mostly(fast, np.ones(len(found), dtype=bool), _series(found), LOST_ROWS)
    return np.select([fast, lost], [TOO_FAST, LOST_SERIES], "").astype(object)


def _series(found: CollectiveMeasurements) -> Ints:
    """Number the series of sizes: equal for one collective of one group on one system."""
    table = found.table
    keys = zip(found.source, found.system, table.kind.tolist(), table.group_size.tolist(),
               table.domains.tolist(), found.nodes.tolist(), strict=True)
    codes: dict[tuple[Any, ...], int] = {}
    return np.array([codes.setdefault(key, len(codes)) for key in keys], dtype=np.int64)


def _mostly(bad: Flags, judged: Flags, series: Ints, least: int) -> Flags:
    """Return the rows of series with ``least`` bad rows that are nearly all of the judged ones."""
    rows = np.bincount(series, weights=judged)
    count = np.bincount(series, weights=bad)
    return np.asarray(((count >= least) & (count >= LOST_SHARE * rows))[series], dtype=bool)


def _disturbed(found: CollectiveMeasurements, series: Ints) -> Flags:
    """Return which times are far above that of a larger message of their series."""
    order = np.lexsort((found.table.bytes, series))
    seconds, sizes = found.measured_s[order], found.table.bytes[order]
    disturbed = np.zeros(len(found), dtype=bool)
    for rows in np.split(np.arange(len(order)), np.flatnonzero(np.diff(series[order])) + 1):
        if not len(rows):
            continue
        least = np.minimum.accumulate(seconds[rows][::-1])[::-1]
        after = np.searchsorted(sizes[rows], sizes[rows], side="right")
        larger = np.append(least, np.inf)[after]
        disturbed[order[rows]] = seconds[rows] > MOST_ABOVE_LARGER * larger
    return disturbed


def _link_share(table: CollectiveTable, networks: NetworkTable, seconds: Floats) -> Floats:
    """Return the rate of a ring or of direct messages over what the links carry, shape (rows,).

    Between domains the links are a domain's adapters, else those of one GPU.
    """
    links = Links(table, networks)
    one_way = np.isin(table.kind, [CollectiveKind.BROADCAST, CollectiveKind.SEND_RECV])
    ring = links.bytes * np.select([table.kind == CollectiveKind.ALL_REDUCE, one_way],
                                   [2 * (1 - 1 / links.ranks), 1.0], 1 - 1 / links.ranks)
    leaving = np.where(table.kind == CollectiveKind.ALL_TO_ALL,
                       links.bytes * links.local * (1 - links.local / links.ranks), ring)
    # One pair of neighbours sends between two domains, through one adapter.
    outside = np.where(table.kind == CollectiveKind.SEND_RECV,
                       networks.nic_bytes_per_s[table.network], links.out_rate)
    least = np.where(links.spread, leaving / outside, ring / links.up_rate)
    return np.asarray(least / seconds)


def _least_s(table: CollectiveTable, networks: NetworkTable) -> Floats:
    """Return the seconds that all links of a rank need to carry what it must send.

    An all-reduce summed in the network sends each byte once; a ring sends it almost twice.
    """
    sends_all = np.isin(table.kind, [CollectiveKind.ALL_REDUCE, CollectiveKind.BROADCAST,
                                     CollectiveKind.SEND_RECV])
    share = np.where(sends_all, 1.0, 1 - 1 / np.maximum(table.group_size, 1))
    inside = networks.intra_bytes_per_s[table.network]
    outside = np.maximum(networks.inter_bytes_per_s, networks.nic_bytes_per_s)[table.network]
    alone = (table.domains > 1) & (table.ranks_per_domain == 1)
    return np.asarray(table.bytes * share / np.where(alone, outside, inside))


@lru_cache(maxsize=256)
def _generation(name: str) -> int:
    try:
        return generation(load_gpu(name))
    except InputError:
        return -1


class _Cells:
    """The cells of a table as arrays of shape (rows,)."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        self.seconds: Floats = self.number("time_us") * 1e-6
        self.bytes = self.number("bytes")
        self.nodes = self.number("nodes")
        self.ranks = self.number("world_size")
        self.rate = self.number("nic_gbps_per_gpu") * GIGA / BITS
        self.kind = np.array([int(_KINDS.get(word.lower(), -1))
                              for word in self.words("collective")], dtype=np.int64)
        names = self.words("gpu")
        known = {name: _generation(name) for name in set(names)}
        self.generation = np.array([known[name] for name in names], dtype=np.int64)
        self.inner = [scale_up(link, gpu) for link, gpu in zip(
            self.words("intra_link"), names, strict=True)]

    def words(self, name: str) -> np.ndarray[Any, Any]:
        """Return a column as text, empty where it is blank or absent."""
        if name not in self.frame:
            return np.full(len(self.frame), "", dtype=object)
        return self.frame[name].astype(object).fillna("").astype(str).to_numpy(dtype=object)

    def text(self, name: str, rows: Ints) -> tuple[str, ...]:
        """Return the cells of a column; ids are row numbers where there is no such column."""
        if name == "id" and "id" not in self.frame:
            return tuple(str(row) for row in rows.tolist())
        return tuple(self.words(name)[rows].tolist())

    def number(self, name: str) -> Floats:
        """Return a numeric column, NaN where a cell is blank or no number."""
        import pandas as pd

        if name not in self.frame:
            return np.full(len(self.frame), np.nan)
        values = pd.to_numeric(self.frame[name], errors="coerce")
        return values.to_numpy(dtype=np.float64, na_value=np.nan)

    def reasons(self) -> np.ndarray[Any, Any]:
        """Return why each row cannot be read, empty where it can."""
        flags = self.words("flag")
        cases = (
            (np.array([any(word in flag for word in BROKEN) for flag in flags]),
             "flagged as broken"),
            (self.kind < 0, "unknown collective"),
            (~np.isin([word.lower() for word in self.words("library")], list(LIBRARIES)),
             "not NCCL, RCCL or gloo"),
            (self.generation < 0, "GPU is not in the catalogue"),
            (np.array([one is None for one in self.inner], dtype=bool),
             "unknown links inside the node"),
            (~(self.seconds > 0), "no time"),
            (~((self.bytes > 0) & (self.ranks > 1) & (self.nodes >= 1)), "blank size"),
            ((self.nodes > 1) & ~(self.rate > 0), "rate of the adapters is not stated"),
        )
        return np.select([case for case, _ in cases], [why for _, why in cases], "").astype(object)

    def tables(self, rows: Ints) -> tuple[CollectiveTable, NetworkTable]:
        """Return ``rows`` as collectives and the distinct networks they ran on."""
        outer = self.words("inter_link")
        records = [self._network(row, outer[row]) for row in rows.tolist()]
        distinct = {record: index for index, record in enumerate(dict.fromkeys(records))}
        columns = np.array(list(distinct), dtype=np.float64).reshape(
            len(distinct), len(NetworkTable.__dataclass_fields__)).T
        ranks = self.ranks[rows].astype(np.int64)
        domains = np.array([self._domains(row) for row in rows.tolist()], dtype=np.int64)
        ones = np.ones(len(rows), dtype=np.int64)
        table = CollectiveTable(
            kind=self.kind[rows], bytes=self.bytes[rows], group_size=ranks,
            network=np.array([distinct[record] for record in records], dtype=np.int64),
            ranks_per_domain=np.maximum(1, ranks // domains), domains=domains, stride=ones,
            concurrent=ones)
        return table, _networks(columns)

    def _domains(self, row: int) -> int:
        """Return the scale-up domains that the ranks of a row span."""
        nodes, inner = int(self.nodes[row]), self.inner[row]
        assert inner is not None
        if inner.between is None:
            return nodes
        local = int(self.ranks[row] // nodes)
        return nodes * max(1, -(-local // inner.domain))

    def _network(self, row: int, outer: str) -> tuple[float, ...]:
        """Return the values of :class:`NetworkTable` in the order of its fields."""
        inner = self.inner[row]
        assert inner is not None
        local = int(self.ranks[row] // self.nodes[row])
        domain = inner.domain if inner.between else max(inner.domain, local)
        between, rate = scale_out(outer), self.rate[row]
        if inner.between is not None and self.nodes[row] == 1:
            between = inner.between
            rate = (between.adapter_bytes_per_s or 0.0) / inner.domain
        elif not rate > 0:
            rate = 1.0
        return (self.generation[row], domain, domain, LINK_KINDS.index(inner.kind),
                inner.bytes_per_s, inner.latency_s, LINK_KINDS.index(between.kind), rate,
                between.adapter_bytes_per_s or rate, between.latency_s)


def _networks(columns: Floats) -> NetworkTable:
    whole = {"generation", "gpus_per_node", "domain", "intra_kind", "inter_kind"}
    names = list(NetworkTable.__dataclass_fields__)
    return NetworkTable(**{
        name: column.astype(np.int64) if name in whole else column
        for name, column in zip(names, columns, strict=True)})
