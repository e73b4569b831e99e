"""The currency of the house: kernels and collectives as columns of arrays.

A table holds each distinct kernel (or collective) once. Everything is SI: bytes, FLOP, seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from predictor.spec.cluster import Cluster, Gpu

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class KernelKind(IntEnum):
    """Families of kernels, each with a time model of its own."""

    GEMM = 0
    GROUPED_GEMM = 1
    """``batch`` GEMMs of mean shape (m, n, k) in one launch."""
    BATCHED_GEMM = 2
    """``batch`` equal GEMMs: the score and context products of eager attention."""
    ATTENTION = 3
    """Fused attention: m query tokens, n key tokens, k head width, batch = samples x heads."""
    NORM = 4
    SOFTMAX = 5
    ELEMENTWISE = 6
    EMBEDDING = 7
    CROSS_ENTROPY = 8
    OPTIMIZER = 9
    PERMUTE = 10
    """Token gather and scatter of mixture-of-experts layers."""
    SCAN = 11
    """State-space scan of Mamba-2."""


class Phase(IntEnum):
    """When a kernel runs: forward, input-gradient, weight-gradient, recompute, once per step."""

    FORWARD = 0
    BACKWARD = 1
    WEIGHT = 2
    RECOMPUTE = 3
    """A forward kernel that runs again in backward."""
    STEP = 4


class Dtype(IntEnum):
    """Data type that decides the peak rate of a kernel's arithmetic."""

    FP32 = 0
    TF32 = 1
    FP16 = 2
    BF16 = 3
    FP8 = 4
    FP4 = 5


class Stream(IntEnum):
    """What an operation occupies and may hide behind."""

    COMPUTE = 0
    TP = 1
    """Tensor parallel, in the way of the next kernel."""
    TP_HIDDEN = 2
    """Tensor parallel, independent of a GEMM that runs beside it."""
    CP = 3
    CP_HIDDEN = 4
    """Ring context parallelism beside the attention of the previous block."""
    EP = 5
    EP_HIDDEN = 6
    """Expert dispatch of one micro-batch beside the computation of another."""


class CollectiveKind(IntEnum):
    """Communication operations; ``bytes`` follows nccl-tests (see :class:`CollectiveTable`)."""

    ALL_REDUCE = 0
    ALL_GATHER = 1
    REDUCE_SCATTER = 2
    ALL_TO_ALL = 3
    SEND_RECV = 4
    BROADCAST = 5


class Columns:
    """A dataclass whose fields are arrays of one length."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def take(self, index: NDArray[np.generic]) -> Self:
        """Return the rows at ``index`` (integers or a mask)."""
        names = [f.name for f in fields(self)]  # type: ignore[arg-type]
        return type(self)(**{name: getattr(self, name)[index] for name in names})


@dataclass(frozen=True, slots=True)
class KernelTable(Columns):
    """One row per distinct kernel launch group. All arrays have shape (rows,)."""

    kind: Ints
    phase: Ints
    dtype: Ints
    device: Ints
    """Row of the :class:`GpuTable` the kernel runs on."""
    batch: Floats
    m: Floats
    n: Floats
    k: Floats
    """GEMM: output (m, n), contraction k. Attention: query tokens, key tokens, head width.
    Memory-bound kinds: m rows of n elements, k unused (0)."""
    causal: Floats
    """Share of the (m, n) score matrix that is computed: 1 dense, about 0.5 causal."""
    flops: Floats
    bytes: Floats
    """Least traffic with device memory."""
    launches: Floats
    """Kernels started; a fused kernel counts once."""
    portable: Ints
    """1 where a portable kernel runs (FlashAttention-2, Triton), 0 for the vendor's library."""


@dataclass(frozen=True, slots=True)
class CollectiveTable(Columns):
    """One row per distinct collective. All arrays have shape (rows,).

    ``bytes`` is the nccl-tests size: all-reduce and broadcast the buffer; all-gather and
    reduce-scatter the whole unsharded buffer; all-to-all one rank's send buffer; send-recv the
    one-way message.
    """

    kind: Ints
    network: Ints
    """Row of the :class:`NetworkTable` the group runs on."""
    bytes: Floats
    group_size: Ints
    ranks_per_domain: Ints
    """Ranks of the group inside one scale-up domain (NVLink island or node)."""
    domains: Ints
    """Scale-up domains that the group spans; 1 means it never leaves NVLink, xGMI or PCIe."""
    stride: Ints
    """Distance in global rank between neighbours of the group."""
    concurrent: Ints
    """Sibling groups of the same domains that communicate at the same time and share adapters."""


@dataclass(frozen=True, slots=True)
class GpuTable(Columns):
    """Distinct GPUs as columns. Peaks and rates in FLOP/s and bytes/s."""

    peak_flops: Floats
    """Shape (gpus, len(Dtype)); types the hardware lacks fall back to the next wider one."""
    memory_bandwidth_bytes_per_s: Floats
    sm_count: Floats
    boost_clock_hz: Floats
    l2_bytes: Floats
    usable_memory_bytes: Floats
    tdp_w: Floats
    host_link_bytes_per_s: Floats
    """To host memory, one direction."""
    generation: Ints
    """Index into :data:`GENERATIONS`."""

    @classmethod
    def from_gpus(cls, gpus: list[Gpu]) -> GpuTable:
        """Return the table of ``gpus``, in order."""
        def column(name: str) -> Floats:
            return np.array([getattr(gpu, name) for gpu in gpus], dtype=np.float64)

        return cls(
            peak_flops=np.array([peak_flops(gpu) for gpu in gpus], dtype=np.float64),
            memory_bandwidth_bytes_per_s=column("memory_bandwidth_bytes_per_s"),
            sm_count=column("sm_count"),
            boost_clock_hz=column("boost_clock_hz"),
            l2_bytes=column("l2_bytes"),
            usable_memory_bytes=column("usable_memory_bytes"),
            tdp_w=column("tdp_w"),
            host_link_bytes_per_s=np.array([_host_link(gpu) for gpu in gpus]),
            generation=np.array([generation(gpu) for gpu in gpus], dtype=np.int64),
        )


GENERATIONS = ("other", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell",
               "cdna2", "cdna3", "cdna4", "cpu")
CPU = GENERATIONS.index("cpu")
"""A CPU core that stands in for a GPU: host and device are one, and nothing runs beside it."""


def generation(gpu: Gpu) -> int:
    """Return the index of the GPU's architecture in :data:`GENERATIONS`, 0 when unknown."""
    name = gpu.architecture.lower()
    return GENERATIONS.index(name) if name in GENERATIONS else 0


_HOST_LINK = {"pascal": 12e9, "volta": 12e9, "turing": 12e9, "ampere": 24e9, "ada": 24e9,
              "cdna2": 24e9}
"""What PCIe generations 3 and 4 reach; later GPUs have generation 5."""


def _host_link(gpu: Gpu) -> float:
    return gpu.host_link_bytes_per_s or _HOST_LINK.get(gpu.architecture.lower(), 50e9)


def peak_flops(gpu: Gpu) -> tuple[float, ...]:
    """Dense peaks in the order of :class:`Dtype`, each falling back to the next wider type."""
    fp16 = gpu.fp16_flops
    bf16 = gpu.bf16_flops or gpu.fp32_flops
    fp8 = gpu.fp8_flops or max(fp16, bf16)
    return (gpu.fp32_flops, gpu.tf32_flops or gpu.fp32_flops, fp16, bf16, fp8,
            gpu.fp4_flops or fp8)


@dataclass(frozen=True, slots=True)
class NetworkTable(Columns):
    """Distinct clusters' links as columns, one scale-up and one scale-out level each."""

    generation: Ints
    """GPU generation, which decides NCCL's protocol constants."""
    gpus_per_node: Ints
    domain: Ints
    """GPUs of one scale-up domain (8 in a DGX, 72 in an NVL72 rack, 1 for a lone GPU)."""
    intra_kind: Ints
    """Index of the scale-up link in :data:`LINK_KINDS`."""
    intra_bytes_per_s: Floats
    """Scale-up bandwidth of one GPU, one direction, all its links together."""
    intra_latency_s: Floats
    inter_kind: Ints
    inter_bytes_per_s: Floats
    """Scale-out bandwidth per GPU, one direction, when all GPUs of the node send."""
    nic_bytes_per_s: Floats
    """One adapter, one direction: the most that one pair of GPUs in two nodes can use."""
    inter_latency_s: Floats

    @classmethod
    def from_clusters(cls, clusters: list[Cluster]) -> NetworkTable:
        """Return the table of ``clusters``, in order; levels above the second bound the rate."""
        rows = [_network_row(cluster) for cluster in clusters]
        columns: dict[str, Any] = {
            f.name: np.array([row[f.name] for row in rows],
                             dtype=np.float64 if f.name.endswith("_s") else np.int64)
            for f in fields(cls)}
        return cls(**columns)


LINK_KINDS = ("nvlink-switch", "nvlink-mesh", "xgmi", "pcie", "infiniband", "roce", "slingshot",
              "efa", "omni-path", "ethernet", "spine", "inter-site")


def _network_row(cluster: Cluster) -> dict[str, float]:
    inner, *outer = cluster.levels
    group = cluster.groups[0]
    between = outer or [inner]
    span = inner.span or cluster.num_gpus
    return {
        "generation": generation(group.gpu),
        "gpus_per_node": group.gpus_per_node,
        "domain": span,
        "intra_kind": LINK_KINDS.index(inner.kind),
        "intra_bytes_per_s": inner.bandwidth_per_gpu_bytes_per_s,
        "intra_latency_s": inner.latency_s,
        "inter_kind": LINK_KINDS.index(between[0].kind),
        "inter_bytes_per_s": min(level.bandwidth_per_gpu_bytes_per_s for level in between),
        "nic_bytes_per_s": min(level.bandwidth_bytes_per_s for level in between),
        "inter_latency_s": sum(level.latency_s for level in between),
    }
