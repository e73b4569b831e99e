"""Links in words: what tables and vendors write about a machine's network and NVLinks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from predictor.spec.vocabulary import LinkKind

_KINDS: tuple[tuple[str, LinkKind], ...] = (
    ("slingshot", "slingshot"), ("omni-path", "omni-path"), ("omnipath", "omni-path"),
    ("efa", "efa"), ("infiniband", "infiniband"), ("roce", "roce"), ("ib ", "infiniband"),
    ("ndr", "infiniband"), ("hdr", "infiniband"), ("edr", "infiniband"), ("xdr", "infiniband"),
    ("quantum", "infiniband"), ("rdma", "roce"), ("ethernet", "ethernet"),
    ("gbe", "ethernet"), ("bf3", "roce"), ("bluefield", "roce"), ("connectx", "infiniband"))
"""Words in the order of what they say: ``RoCE over Ethernet`` is RoCE. An adapter's name alone
(ConnectX, BlueField) is taken for what it is mostly sold as."""
_GENERATIONS = {"xdr": 800.0, "ndr": 400.0, "hdr": 200.0, "edr": 100.0, "fdr": 56.0}
"""Gb/s of a four-lane InfiniBand port (InfiniBand Trade Association's roadmap)."""
FASTEST_ADAPTER_GBITS = 800.0
"""A higher rate is the sum over a node's adapters."""
_COUNTED = re.compile(r"(\d+)\s*x(?=\s|[a-z]|\d+\s*g)")
_GIGABITS = re.compile(
    r"(\d+(?:\.\d+)?)\s*(t|g)(?:b/s|bps|bit/s|b/sec|(?=\s+ethernet|\s*/\s*gpu|be\b))")
_GIGABYTES = re.compile(r"(\d+(?:\.\d+)?)\s*gb/s", re.IGNORECASE)
_BARE = re.compile(r"\befa\b[^,;(]*?\b(\d{3,4})\b")
_PER_GPU = re.compile(r"per gpu|/\s*gpu")
_PER_NODE = re.compile(r"(?:per|/)\s*(?:node|host|server)|node[- ](?:to[- ])?node")
_GPUS_PER_NODE = re.compile(r"\d+\s*gpus?\s*(?:per|/)\s*node")
_NOT_A_NETWORK = re.compile(r"pcie|nvlink|xgmi|hbm")
_PER_NODE_KINDS = frozenset({"efa", "ethernet"})
"""Networks whose rate is quoted for the whole node (AWS instance tables; one Ethernet port)."""
_SIDE_NETWORKS = re.compile(r"storage|management|\bns\b", re.IGNORECASE)
_NVLINKS = re.compile(r"nvlink\s*(?:gen\s*)?(\d)\D[^,;]*?(\d+)\s*links", re.IGNORECASE)
_NVLINK_BYTES_PER_S = {"1": 20e9, "2": 25e9, "3": 25e9, "4": 25e9, "5": 50e9}
"""One link, one direction, by NVLink generation."""
_PCIE = re.compile(r"pci\s*-?\s*e(?:xpress)?\s*(?:gen\s*)?(\d)?", re.IGNORECASE)
_PCIE_BYTES_PER_S = {"3": 15.75e9, "4": 31.5e9, "5": 63e9}
"""Sixteen lanes, one direction (PCI Express base specification)."""
NVLINK_GIGABYTES = (40.0, 3600.0)
"""Rates of one GPU's NVLinks, both directions together, from P100 to a generation ahead."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """Scale-out links that a text states."""

    kind: LinkKind | None
    """None when only a rate is given."""
    bytes_per_s: float | None
    """One adapter, one direction; None when no rate is given. Above
    :data:`FASTEST_ADAPTER_GBITS` the sum over a node's adapters."""
    count: int | None
    """Adapters per node; None for one per GPU."""


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """Links inside a node that a text states, of one GPU."""

    kind: LinkKind | None
    """None when the text does not say that it is other than usual for the GPU."""
    bytes_per_s: float | None
    """One direction, all links of a GPU together; None when no rate is given."""


@lru_cache(maxsize=4096)
def parse_adapters(text: str) -> Adapters | None:
    """Return the adapters that ``text`` describes, None when it names no network.

    A description of a whole system names several: those for storage and management are dropped
    and the fastest of the others counts.
    """
    pieces = re.split(r"[,;](?![^(]*\))|\sand\s", text)
    labelled = [piece for piece in pieces if re.search(r"compute\s*:", piece, re.IGNORECASE)]
    kept = labelled or [piece for piece in pieces if not _SIDE_NETWORKS.search(piece)]
    found = [adapters for adapters in map(_adapters, kept) if adapters is not None]
    return max(found, key=lambda one: (one.bytes_per_s or 0.0) * (one.count or 1), default=None)


def _adapters(piece: str) -> Adapters | None:
    lowered = _GPUS_PER_NODE.sub("", piece.lower())
    kind, rate = _kind(piece), _bytes_per_s(piece)
    if rate is None:
        return None if kind in (None, "ethernet") else Adapters(kind, None, None)
    if kind is None and _NOT_A_NETWORK.search(lowered):
        return None
    return Adapters(kind, rate, _count(lowered, kind, rate))


def _count(lowered: str, kind: LinkKind | None, rate: float) -> int | None:
    """Adapters per node; None for one per GPU, which is how vendors build servers."""
    if _PER_GPU.search(lowered):
        return None
    counted = _COUNTED.search(lowered)
    if counted:
        return int(counted.group(1))
    whole = _PER_NODE.search(lowered) or rate * 8e-9 > FASTEST_ADAPTER_GBITS
    return 1 if whole or kind in _PER_NODE_KINDS else None


def _kind(text: str) -> LinkKind | None:
    lowered = f"{text.lower()} "
    return next((kind for word, kind in _KINDS if word in lowered), None)


def _bytes_per_s(text: str) -> float | None:
    """One adapter, one direction. A measured rate per GPU comes first; a rate in parentheses
    behind a generation (``4xHDR200 (800 Gb/s)``) is the node's sum."""
    measured = _GIGABYTES.search(text)
    if measured and _PER_GPU.search(text.lower()) and "GB/s" in measured.group(0):
        return float(measured.group(1)) * 1e9
    for name, rate in _GENERATIONS.items():
        stated = re.search(rf"{name}(\d*)(?![a-z])", text, re.IGNORECASE)
        if stated:
            return float(stated.group(1) or rate) * 1e9 / 8
    lowered = text.lower().replace("gb/sec", "gb/s").replace("gbit/sec", "gb/s")
    bits = _GIGABITS.search(lowered)
    if bits and not (measured and "GB/s" in measured.group(0)):
        return float(bits.group(1)) * (1e12 if bits.group(2) == "t" else 1e9) / 8
    if measured and "GB/s" in measured.group(0) and _PER_NODE.search(lowered):
        return float(measured.group(1)) * 1e9
    bare = _BARE.search(lowered)
    return float(bare.group(1)) * 1e9 / 8 if bare else None


@lru_cache(maxsize=4096)
def parse_scale_up(text: str) -> ScaleUp:
    """Return what ``text`` says about the links inside a node.

    ``NVLink3 (4 links ...)`` counts links; ``NVLink Gen4 900 GB/s`` gives a GPU's rate in both
    directions together, as data sheets do; PCIe counts only where no NVLink is named.
    """
    links = _NVLINKS.search(text)
    if links is not None:
        return ScaleUp(None, int(links.group(2)) * _NVLINK_BYTES_PER_S.get(links.group(1), 25e9))
    if "nvl" in text.lower():
        return ScaleUp("nvlink-mesh" if "bridge" in text.lower() else None, _nvlink_rate(text))
    pcie = _PCIE.search(text)
    if pcie is not None:
        return ScaleUp("pcie", _PCIE_BYTES_PER_S.get(pcie.group(1) or ""))
    return ScaleUp(None, None)


def _nvlink_rate(text: str) -> float | None:
    stated = _GIGABYTES.search(text)
    if stated is None or not NVLINK_GIGABYTES[0] <= float(stated.group(1)) <= NVLINK_GIGABYTES[1]:
        return None
    return float(stated.group(1)) * 1e9 / 2
