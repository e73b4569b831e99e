"""Reads tables of measured collectives (nccl-tests columns) into the columns that timing takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.catalog import load_gpu
from predictor.datasets.collective_links import BITS, GIGA, scale_out, scale_up
from predictor.datasets.tables import read_table, require_columns
from predictor.lowering.tables import (
    LINK_KINDS, CollectiveKind, CollectiveTable, Floats, Ints, NetworkTable, generation,
)
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_KINDS = {
    "all_reduce": CollectiveKind.ALL_REDUCE, "all_gather": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER, "alltoall": CollectiveKind.ALL_TO_ALL,
    "all_to_all": CollectiveKind.ALL_TO_ALL, "sendrecv": CollectiveKind.SEND_RECV,
    "broadcast": CollectiveKind.BROADCAST,
}
LIBRARIES = frozenset({"", "nccl", "rccl"})
"""What training frameworks call. Kernels of inference engines only serve one size range."""
BROKEN = ("duplicate", "exceeds", "misconfigured", "wrong_results", "pathological",
          "tcp_or_default_env", "unknown")
"""Words of a flag that say that a time does not belong to the machine that the row names."""
PEAK_SLACK = 1.05


@dataclass(frozen=True, slots=True)
class CollectiveMeasurements:
    """Measured collectives; every array has shape (rows,)."""

    table: CollectiveTable
    networks: NetworkTable
    measured_s: Floats
    ids: tuple[str, ...]
    source: tuple[str, ...]
    system: tuple[str, ...]
    nodes: Ints
    """Servers taking part; domains are smaller where NVLink bridges only pairs of GPUs."""
    refused: tuple[tuple[str, str], ...]
    """Row and reason of what is not scored."""

    def __len__(self) -> int:
        return len(self.measured_s)

    def refusals(self) -> dict[str, int]:
        """Return how many rows were refused for each reason."""
        return dict(Counter(why for _, why in self.refused))


def read_collectives(source: str | Path | pd.DataFrame) -> CollectiveMeasurements:
    """Return the measurements of a table and why the rest of its rows is refused.

    Refused: rows flagged as broken, collectives that training does not use, other libraries than
    NCCL and RCCL, GPUs outside the catalogue, links whose kind or rate is not stated, and times
    below what the links allow.

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
    impossible = _least_s(table, networks) > cells.seconds[kept] * PEAK_SLACK
    why[kept[impossible]] = "faster than the links allow"
    possible = np.flatnonzero(~impossible)
    kept = kept[possible]
    refused = np.flatnonzero(why != "")
    return CollectiveMeasurements(
        table.take(possible), networks, cells.seconds[kept], cells.text("id", kept),
        cells.text("source", kept), cells.text("system", kept),
        cells.nodes[kept].astype(np.int64),
        tuple(zip(cells.text("id", refused), why[refused].tolist(), strict=True)))


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
             "not NCCL or RCCL"),
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
