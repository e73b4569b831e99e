"""The machine of a measured row: its GPU's usual server, with the links that the row states."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from predictor.catalog import load_cluster, load_gpu
from predictor.spec.cluster import Cluster, Gpu, LinkLevel, NodeGroup
from predictor.spec.vocabulary import LinkKind

_PLATFORMS: tuple[tuple[str, str], ...] = (
    ("v100-sxm3", "dgx-2"), ("v100", "dgx-v100"), ("a100-pcie", "a100-pcie"),
    ("a100-sxm-40", "dgx-a100-40gb"), ("a100-sxm", "dgx-a100-80gb"), ("h100-sxm-96", "hgx-h100-96gb"),
    ("h100-pcie", "h100-pcie"), ("h100", "dgx-h100"), ("h800", "h800-deepseek"),
    ("h200", "dgx-h200"), ("gh200", "vista-gh200"), ("gb200", "gb200-nvl72"),
    ("gb300", "gb300-nvl72"), ("b200", "dgx-b200"), ("b300", "dgx-b300"), ("mi250", "frontier"),
    ("mi300", "mi300x"), ("mi325", "mi325x"), ("mi35", "mi355x"), ("l40", "l40s"),
    ("rtx", "rtx-4090"))
_KINDS: tuple[tuple[str, LinkKind], ...] = (
    ("slingshot", "slingshot"), ("omni-path", "omni-path"), ("efa", "efa"), ("infiniband", "infiniband"),
    ("roce", "roce"), ("ib ", "infiniband"), ("ndr", "infiniband"), ("hdr", "infiniband"),
    ("edr", "infiniband"), ("quantum", "infiniband"), ("rdma", "roce"),
    ("ethernet", "ethernet"))
_GENERATIONS = {"xdr": 800.0, "ndr": 400.0, "hdr": 200.0, "edr": 100.0, "fdr": 56.0}
_COUNTED = re.compile(r"(\d+)\s*x(?=\s|[a-z])")
_GIGABITS = re.compile(r"(\d+(?:\.\d+)?)\s*(?:G(?:b/s|b/S|bps|b/sec)|G(?=\s+Ethernet|/GPU))")
_GIGABYTES_PER_GPU = re.compile(r"(\d+(?:\.\d+)?)\s*GB/s per GPU")
_NVLINKS = re.compile(r"nvlink\s*(?:gen\s*)?(\d)\D[^,;]*?(\d+)\s*links", re.IGNORECASE)
_NVLINK_BYTES_PER_S = {"1": 20e9, "2": 25e9, "3": 25e9, "4": 25e9, "5": 50e9}
"""One link, one direction, by NVLink generation."""
_SIDE_NETWORKS = re.compile(r"storage|management", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Adapters:
    """Scale-out links that a text states."""

    kind: LinkKind
    bytes_per_s: float | None
    """One adapter, one direction; None when no rate is given."""
    count: int | None
    """Adapters per node; None for one per GPU."""


@lru_cache(maxsize=4096)
def parse_adapters(text: str) -> Adapters | None:
    """Return the adapters that ``text`` describes, None when it names no network.

    A description of a whole system names several: those for storage and management are dropped
    and the fastest of the others counts.
    """
    measured = _GIGABYTES_PER_GPU.search(text)
    if measured is not None:
        return Adapters(_kind(text) or "ethernet", float(measured.group(1)) * 1e9, None)
    pieces = re.split(r"[,;](?![^(]*\))", text)
    labelled = [piece for piece in pieces if re.search(r"compute\s*:", piece, re.IGNORECASE)]
    kept = labelled or [piece for piece in pieces if not _SIDE_NETWORKS.search(piece)]
    found = [adapters for adapters in map(_adapters, kept) if adapters is not None]
    return max(found, key=lambda one: (one.bytes_per_s or 0.0) * (one.count or 1), default=None)


def _adapters(piece: str) -> Adapters | None:
    kind, rate = _kind(piece), _gigabits(piece)
    if kind is None or (kind == "ethernet" and rate is None):
        return None
    lowered = piece.lower()
    count = _COUNTED.search(lowered)
    per_gpu = "per gpu" in lowered or "/gpu" in lowered
    return Adapters(kind, None if rate is None else rate * 1e9 / 8,
                    int(count.group(1)) if count and not per_gpu else None)


def _kind(text: str) -> LinkKind | None:
    lowered = f"{text.lower()} "
    return next((kind for word, kind in _KINDS if word in lowered), None)


def _gigabits(text: str) -> float | None:
    """Rate of one adapter in Gb/s. A rate in parentheses is the node's sum."""
    for name, rate in _GENERATIONS.items():
        stated = re.search(rf"{name}(\d*)(?![a-z])", text, re.IGNORECASE)
        if stated:
            return float(stated.group(1) or rate)
    match = _GIGABITS.search(text)
    return float(match.group(1)) if match else None


@lru_cache(maxsize=4096)
def platform_of(gpu_name: str) -> Cluster:
    """Return the server that a GPU usually comes in."""
    for prefix, cluster in _PLATFORMS:
        if gpu_name.startswith(prefix):
            return load_cluster(cluster)
    return load_cluster("dgx-h100")


@lru_cache(maxsize=4096)
def gpu_of(text: str) -> Gpu:
    """Return the catalogue's GPU for a cell such as ``A100-SXM4-40GB (DGX-A100)``.

    Raises
    ------
    InputError
        When the catalogue has no such GPU.
    """
    try:
        return load_gpu(text)
    except ValueError:
        return load_gpu(re.split(r"\s*[(/]", text, maxsplit=1)[0])


@lru_cache(maxsize=16384)
def cluster_of(gpu_text: str, num_gpus: int, gpus_per_node: int | None, intra: str,
               inter: str) -> Cluster:
    """Return the cluster of ``num_gpus`` that a row describes."""
    gpu = gpu_of(gpu_text)
    platform = platform_of(gpu.name)
    usual = platform.groups[0].gpus_per_node
    stated = gpus_per_node or usual
    per_node = next(size for size in range(min(stated, num_gpus), 0, -1) if num_gpus % size == 0)
    inner, *outer = platform.levels
    span = stated if inner.span <= usual else inner.span
    levels = (replace(_linked(inner, intra), span=span), *(_scaled(level, usual, stated, inter) for level in outer))
    return Cluster(
        name=platform.name, levels=levels,
        groups=(NodeGroup(gpu=gpu, gpus_per_node=per_node, nodes=num_gpus // per_node),))


def _linked(level: LinkLevel, intra: str) -> LinkLevel:
    """The platform's scale-up links, or the number of NVLinks per GPU that the row states."""
    stated = _NVLINKS.search(intra)
    if stated is None:
        return level
    rate = _NVLINK_BYTES_PER_S.get(stated.group(1), 25e9)
    return replace(level, bandwidth_bytes_per_s=int(stated.group(2)) * rate, links=1,
                   gpus_sharing=1)


def _scaled(level: LinkLevel, usual: int, stated: int, inter: str) -> LinkLevel:
    """The platform's adapters per GPU, or the ones that the row states."""
    adapters = parse_adapters(inter)
    if adapters is None or level.span:
        return level
    if adapters.bytes_per_s is None:
        return replace(level, kind=adapters.kind)
    links, sharing = (1, 1) if adapters.count is None else (adapters.count, stated)
    return replace(level, kind=adapters.kind, bandwidth_bytes_per_s=adapters.bytes_per_s,
                   links=links, gpus_sharing=max(1, sharing), oversubscription=1.0)
