"""The machine of a measured row: its GPU's usual server, with the links that the row states."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from predictor.catalog import load_cluster, load_gpu
from predictor.catalog.names import find, require
from predictor.datasets.interconnect import (
    FASTEST_ADAPTER_GBITS, parse_adapters, parse_scale_up,
)
from predictor.spec.cluster import Cluster, Gpu, LinkLevel, NodeGroup

_PLATFORMS: tuple[tuple[str, str], ...] = (
    ("v100-sxm3", "dgx-2"), ("v100-pcie", "a100-pcie"), ("v100", "dgx-v100"),
    ("p100-pcie", "a100-pcie"), ("p100", "dgx-v100"), ("a100-pcie", "a100-pcie"),
    ("a100-sxm-40", "dgx-a100-40gb"), ("a100-sxm", "dgx-a100-80gb"), ("a800", "dgx-a100-80gb"),
    ("h100-sxm-96", "hgx-h100-96gb"), ("h100-pcie", "h100-pcie"), ("h100-nvl", "h100-pcie"),
    ("h100", "dgx-h100"), ("h800", "h800-deepseek"), ("h200", "dgx-h200"), ("h20", "dgx-h100"),
    ("gh200", "vista-gh200"), ("gb200", "gb200-nvl72"), ("gb300", "gb300-nvl72"),
    ("b200", "dgx-b200"), ("b300", "dgx-b300"), ("mi2", "frontier"), ("mi300", "mi300x"),
    ("mi325", "mi325x"), ("mi35", "mi355x"), ("l4", "l40s"), ("rtx-pro", "l40s"),
    ("rtx", "rtx-4090"), ("cpu", "cpu-gloo"))
"""Start of a GPU's name -> the server that it usually comes in."""
PLAIN_SERVER = "l40s"
"""Server of a GPU that nothing else is known of: PCIe inside, two adapters."""
QUAD = 4
"""GPUs of NVIDIA's smaller HGX boards, which join each pair directly and have no NVSwitch."""
_MEMORY = re.compile(r"^\d+gb$", re.IGNORECASE)


@lru_cache(maxsize=4096)
def platform_of(gpu_name: str, gpus_per_node: int | None = None) -> Cluster:
    """Return the server that a GPU of the catalogue usually comes in."""
    if gpu_name.startswith("gh200") and (gpus_per_node or 1) > 1:
        return load_cluster("gh200-quad")
    for prefix, cluster in _PLATFORMS:
        if gpu_name.startswith(prefix):
            return load_cluster(cluster)
    return load_cluster(PLAIN_SERVER)


@lru_cache(maxsize=4096)
def gpu_of(text: str) -> Gpu:
    """Return the catalogue's GPU for a cell such as ``A100-SXM4-40GB (DGX-A100)``.

    What follows a parenthesis or a slash is a remark; further words at the end are dropped until
    the catalogue knows the rest (``H100 96GB HBM2e``).

    Raises
    ------
    InputError
        When the catalogue has no such GPU.
    """
    for spelling in (text, *_spellings(text)):
        name = find("gpus", spelling)  # never a file: a cell is not a path
        if name is not None:
            return load_gpu(name)
    require("gpus", text, "gpu")
    raise AssertionError("unreachable: require raises for what find does not find")


def _spellings(text: str) -> list[str]:
    plain = re.split(r"\s*[(/]", text, maxsplit=1)[0]
    words = [word for word in re.split(r"[\s_-]+", plain) if word]
    size_last = [word for word in words if not _MEMORY.match(word)] + [
        word for word in words if _MEMORY.match(word)]
    shorter = [words[:count] for count in range(len(words) - 1, 0, -1)]
    return [plain, *("-".join(some) for some in (size_last, *shorter))]


@lru_cache(maxsize=16384)
def cluster_of(gpu_text: str, num_gpus: int, gpus_per_node: int | None, intra: str,
               inter: str) -> Cluster:
    """Return the cluster of ``num_gpus`` that a row describes.

    Nodes hold as many GPUs as the row says, or fewer where that does not divide ``num_gpus``.

    Raises
    ------
    InputError
        When the catalogue has no such GPU.
    """
    gpu = gpu_of(gpu_text)
    platform = platform_of(gpu.name, gpus_per_node)
    usual = platform.groups[0].gpus_per_node
    stated = gpus_per_node or usual
    per_node = next(size for size in range(min(stated, num_gpus), 0, -1) if num_gpus % size == 0)
    inner, *outer = platform.levels
    if not outer:  # a node of one GPU has no links inside
        inner, outer = replace(inner, name="alone"), [inner]
    span = stated if inner.span <= usual else inner.span
    if span == QUAD < usual and inner.kind == "nvlink-switch" and "switch" not in intra.lower():
        inner = replace(inner, kind="nvlink-mesh")
    levels = (replace(_inside(inner, intra), span=span),
              *(_between(level, stated, inter) for level in outer))
    return Cluster(
        name=platform.name, levels=levels,
        groups=(NodeGroup(gpu=gpu, gpus_per_node=per_node, nodes=num_gpus // per_node),))


def _inside(level: LinkLevel, intra: str) -> LinkLevel:
    """The platform's scale-up links, or what the row states of them."""
    stated = parse_scale_up(intra)
    if stated.kind is not None and stated.kind != level.kind:
        level = replace(level, kind=stated.kind)
    if stated.bytes_per_s is None or level.kind == "xgmi":
        return level
    return replace(level, bandwidth_bytes_per_s=stated.bytes_per_s, links=1, gpus_sharing=1)


def _between(level: LinkLevel, stated: int, inter: str) -> LinkLevel:
    """The platform's adapters per GPU, or the ones that the row states."""
    adapters = parse_adapters(inter)
    if adapters is None or level.span:
        return level
    kind, rate = adapters.kind or level.kind, adapters.bytes_per_s
    if rate is None:
        return replace(level, kind=kind)
    links, sharing = (1, 1) if adapters.count is None else (adapters.count, max(1, stated))
    if rate > FASTEST_ADAPTER_GBITS * 1e9 / 8:  # the node's sum, over one adapter per GPU
        rate, links, sharing = rate / sharing, 1, 1
    return replace(level, kind=kind, bandwidth_bytes_per_s=rate, links=links,
                   gpus_sharing=sharing, oversubscription=1.0)
