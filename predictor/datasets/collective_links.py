"""The links of a measured machine, from the words that nccl-tests logs and papers use for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from predictor.spec.vocabulary import LinkKind

GIGA = 1e9
BITS = 8.0


@dataclass(frozen=True, slots=True)
class ScaleOut:
    """Links between domains."""

    kind: LinkKind
    adapter_bytes_per_s: float | None
    """One adapter, one direction; None when only the rate per GPU is stated."""
    latency_s: float


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """Links inside a domain."""

    kind: LinkKind
    bytes_per_s: float
    """Of one GPU, one direction, all its links together."""
    domain: int
    """GPUs of one domain."""
    latency_s: float
    between: ScaleOut | None = None
    """Links between the domains of one node, where it has several."""


_SWITCH, _PCIE = 2e-6, 5e-6
_SCALE_UP: tuple[tuple[str, ScaleUp], ...] = (
    # One direction: NVLink 2 to 5 carry 150, 300, 450 and 900 GB/s per GPU (NVIDIA data sheets).
    ("nvl72", ScaleUp("nvlink-switch", 900 * GIGA, 72, _SWITCH)),
    ("nvlink5", ScaleUp("nvlink-switch", 900 * GIGA, 8, _SWITCH)),
    ("nvlink4", ScaleUp("nvlink-switch", 450 * GIGA, 8, _SWITCH)),
    ("nvlink3 all-to-all", ScaleUp("nvlink-mesh", 300 * GIGA, 4, _SWITCH)),
    ("nvlink3", ScaleUp("nvlink-switch", 300 * GIGA, 8, _SWITCH)),
    ("nvlink2 hybrid cube mesh", ScaleUp("nvlink-mesh", 150 * GIGA, 8, _SWITCH)),
    ("nvlink2", ScaleUp("nvlink-switch", 150 * GIGA, 16, _SWITCH)),
    ("pcie 5.0 x8", ScaleUp("pcie", 31.5 * GIGA, 8, _PCIE)),
    ("pcie 5.0", ScaleUp("pcie", 63 * GIGA, 8, _PCIE)),
    ("pcie 4.0", ScaleUp("pcie", 31.5 * GIGA, 8, _PCIE)),
    # xGMI: seven links of 64 GB/s in MI300X, 76.8 GB/s in MI350X; MI250X counts per GCD (AMD).
    ("xgmi mi300", ScaleUp("xgmi", 7 * 64 * GIGA, 8, 3e-6)),
    ("xgmi mi35", ScaleUp("xgmi", 7 * 76.8 * GIGA, 8, 3e-6)),
    ("xgmi mi250", ScaleUp("xgmi", 7 * 50 * GIGA, 8, 3e-6)),
    # What TCP over the loopback interface of a server moves; cluster cpu-gloo.
    ("gloo", ScaleUp("ethernet", 2 * GIGA, 2, 2e-5)),
    ("none", ScaleUp("pcie", 15.75 * GIGA, 1, _PCIE)),
)
_SCALE_OUT: tuple[tuple[str, LinkKind, float], ...] = (
    ("slingshot", "slingshot", 6e-6), ("efa", "efa", 2e-5), ("roce", "roce", 6e-6),
    ("tcpx", "ethernet", 1.5e-5), ("ethernet", "ethernet", 1e-5), ("", "infiniband", 5e-6))
_COUNTED = re.compile(r"\d+\s*x\s*(\d+)\s*G")
_PER_NODE = re.compile(r"(\d+)\s*G\s*/\s*node")


@lru_cache(maxsize=512)
def scale_up(text: str, gpu: str) -> ScaleUp | None:
    """Return the links inside the node of ``gpu``, None when ``text`` names no known kind.

    GPUs with NVLink bridges are domains of two that PCIe joins, of the generation the GPU has.
    """
    words = f"{text} {gpu}".lower().replace("infinity fabric ", "")
    if "bridge" in words:
        host = (63 if "h100" in words else 31.5) * GIGA
        return ScaleUp("nvlink-mesh", (56.25 if "a40" in words else 300) * GIGA, 2, _SWITCH,
                       ScaleOut("pcie", host, _PCIE))
    if text.lower().startswith("nvlink5") and gpu.lower().startswith("gb"):
        words = "nvl72"
    return next((links for name, links in _SCALE_UP if name in words), None)


@lru_cache(maxsize=512)
def scale_out(text: str) -> ScaleOut:
    """Return the adapters that ``text`` describes; InfiniBand where it names no kind."""
    words = text.lower()
    kind, latency = next((kind, latency) for name, kind, latency in _SCALE_OUT if name in words)
    found = _PER_NODE.search(text) or _COUNTED.search(text)
    rate = float(found.group(1)) * GIGA / BITS if found else None
    return ScaleOut(kind, rate, latency)
