"""The machines: GPUs, nodes and the ordered levels of links between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from predictor.spec.checks import FASTEST, LARGEST, STRICT, Checks
from predictor.spec.vocabulary import LinkKind


def _largest(name: str) -> float:
    return FASTEST if name.endswith(("_flops", "_per_s")) else LARGEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator as a process sees it (an MI250X counts as two). Peaks are dense, in FLOP/s.

    A peak of 0 means that the hardware has no such units.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    name: str
    vendor: str = "nvidia"
    architecture: str = ""
    """Lower-case generation: volta, ampere, ada, hopper, blackwell, cdna2, cdna3 ..."""
    sm_count: int
    boost_clock_hz: float
    l2_bytes: float
    memory_bytes: float
    """Bytes that the data sheet promises."""
    usable_memory_bytes: float
    """Bytes that the driver reports to a process."""
    memory_bandwidth_bytes_per_s: float
    fp32_flops: float
    tf32_flops: float = 0.0
    fp16_flops: float
    bf16_flops: float = 0.0
    fp8_flops: float = 0.0
    fp4_flops: float = 0.0
    tdp_w: float = 0.0
    host_link_bytes_per_s: float = 0.0
    """Rate to host memory, one direction; 0 for the PCIe of the GPU's generation."""
    source: str = ""

    def __post_init__(self) -> None:
        check = Checks()
        for name in ("sm_count", "boost_clock_hz", "l2_bytes", "memory_bytes",
                     "usable_memory_bytes", "memory_bandwidth_bytes_per_s", "fp32_flops",
                     "fp16_flops"):
            check.positive(name, getattr(self, name), _largest(name))
        for name in ("tf32_flops", "bf16_flops", "fp8_flops", "fp4_flops", "tdp_w",
                     "host_link_bytes_per_s"):
            check.not_negative(name, getattr(self, name), _largest(name))
        check.raise_problems()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes that are alike."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    gpu: Gpu
    gpus_per_node: int
    nodes: int = 1

    def __post_init__(self) -> None:
        check = Checks()
        check.positive("gpus_per_node", self.gpus_per_node)
        check.positive("nodes", self.nodes)
        check.raise_problems()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLevel:
    """One level of links. ``span`` GPUs reach each other at this level without a higher one.

    ``links`` links of ``bandwidth_bytes_per_s`` (one direction) are shared by ``gpus_sharing``
    GPUs: NVLink at 450 GB/s is ``links=1, gpus_sharing=1``; a node of eight GPUs with four
    HDR adapters is ``links=4, gpus_sharing=8, bandwidth_bytes_per_s=25e9``.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    name: str
    kind: LinkKind
    span: int = 0
    """GPUs of one unit of this level (8 in a DGX, 72 in an NVL72 rack); 0 for the whole cluster."""
    bandwidth_bytes_per_s: float
    latency_s: float
    links: int = 1
    gpus_sharing: int = 1
    oversubscription: float = 1.0

    @property
    def bandwidth_per_gpu_bytes_per_s(self) -> float:
        """Share of one GPU, one direction, when all GPUs send at once."""
        shared = self.links / self.gpus_sharing
        return self.bandwidth_bytes_per_s * shared / self.oversubscription

    def __post_init__(self) -> None:
        check = Checks()
        check.not_negative("span", self.span)
        for name in ("bandwidth_bytes_per_s", "links", "gpus_sharing"):
            check.positive(name, getattr(self, name), _largest(name))
        check.within("latency_s", self.latency_s, 0, 10)
        check.within("oversubscription", self.oversubscription, 1, 1e6)
        check.raise_problems()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Groups of nodes under link levels ordered from the inside out.

    One group and two levels (inside the scale-up domain, between domains) is the common case.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    name: str = "custom"
    groups: tuple[NodeGroup, ...]
    levels: tuple[LinkLevel, ...] = field(default_factory=tuple)
    source: str = ""

    def __post_init__(self) -> None:
        check = Checks()
        if not self.groups:
            check.add("cluster-has-nodes", "groups", "a cluster needs one group of nodes",
                      "give groups with gpu, gpus_per_node and nodes")
        if not self.levels:
            check.add("cluster-has-links", "levels", "a cluster needs at least one link level",
                      "describe the links inside a node, and between nodes when there are several")
        spans = [level.span for level in self.levels[:-1]]
        if 0 in spans or spans != sorted(spans):
            check.add("levels-inside-out", "levels",
                      f"link levels must be ordered from the smallest span to the largest: {spans}",
                      "order them inside out; only the last may have span 0 (everything)")
        check.raise_problems()

    @property
    def num_gpus(self) -> int:
        """GPUs of all groups."""
        return sum(group.gpus_per_node * group.nodes for group in self.groups)

    @property
    def gpu(self) -> Gpu:
        """GPU of the first group."""
        return self.groups[0].gpu
