"""What NCCL's and RCCL's algorithms and protocols cost: latencies and rates of single steps.

The latencies and per-link rates are those of the libraries' own tuning models: NVIDIA/nccl
src/graph/tuning.cc and topo.h (commit 5067397), ROCm/rccl src/graph/tuning.cc (commit 0cbce2a).
Triples are in the order LL (a flag in every 8 bytes), LL128 (a flag in every 128 bytes), Simple
(chunks between synchronisations).
"""

from __future__ import annotations

import numpy as np

from predictor.lowering.tables import GENERATIONS, LINK_KINDS, Floats, Ints

MICRO = 1e-6
GIGA = 1e9
LL, LL128, SIMPLE = 0, 1, 2
SWITCHED, MESH, XGMI, PCIE = range(4)
"""Scale-up kinds: positions in ``LINK_KINDS``."""
AMD = np.array([name.startswith("cdna") for name in GENERATIONS])

RING_BASE_S = np.array([6.6, 14.0, 8.4]) * MICRO
TREE_BASE_S = np.array([6.8, 14.0, 8.4]) * MICRO
"""Start of a kernel and its first synchronisation (NCCL baseLatencies)."""
NVLS_LATENCY_S = 25 * MICRO
NVLS_TREE_HOP_S = 20.9 * MICRO

_UP_RING = {"nvlink": [1.0, 1.9, 3.4], "pcie": [1.0, 2.5, 5.7], "xgmi": [0.8, 2.2, 2.1]}
_UP_TREE = {"nvlink": [1.0, 1.25, 4.0], "pcie": [1.0, 1.9, 4.0], "xgmi": [0.9, 1.4, 2.3]}
_UP_NAMES = ("nvlink", "nvlink", "xgmi", "pcie")
UP_RING_HOP_S = np.array([_UP_RING[name] for name in _UP_NAMES]) * MICRO
UP_TREE_HOP_S = np.array([_UP_TREE[name] for name in _UP_NAMES]) * MICRO
"""One hop inside a domain, shape (scale-up kinds, protocols). NCCL's table has 0.6 us for LL on
NVLink; 1 us is what arXiv 2507.04786 measures and what small messages on A100 to B200 show."""

_VERBS = ([2.7, 4.0, 14.0], [5.0, 8.5, 14.0])
_LIBFABRIC = ([28.0, 60.0, 110.0], [10.0, 20.0, 40.0])
_CLOUD = ([35.4, 87.8, 209.2], [32.2, 34.4, 47.6])
_HOST = ([1.0, 2.5, 5.7], [1.0, 1.9, 4.0])
_OUT = {"pcie": _HOST, "infiniband": _VERBS, "roce": _VERBS, "omni-path": _VERBS, "spine": _VERBS,
        "slingshot": _LIBFABRIC, "efa": _CLOUD, "ethernet": _CLOUD, "inter-site": _CLOUD}
OUT_RING_HOP_S = np.array([_OUT.get(name, _VERBS)[0] for name in LINK_KINDS]) * MICRO
OUT_TREE_HOP_S = np.array([_OUT.get(name, _VERBS)[1] for name in LINK_KINDS]) * MICRO
"""One hop between domains, shape (link kinds, protocols). InfiniBand and RoCE: NCCL's NET row.
PCIe between bridged pairs: NCCL's PCI row. Cloud networks behind a plugin: RCCL's slowest NET row.
Slingshot through libfabric: published nccl-tests of 2 to 8 nodes of Polaris, where a 16 KiB step of
a ring takes about 120 us."""
ORDERED = np.array([name not in ("slingshot", "efa", "ethernet") for name in LINK_KINDS])
"""Where LL128 may cross domains: it needs 128-byte stores that arrive whole, which the plugins of
libfabric and cloud networks do not promise."""
VERBS_LATENCY_S = 5 * MICRO
"""Network latency that the hops above include; what a cluster states beyond it adds to each."""

HOP_SCALE = np.array([0.75 if name == "hopper" else 1.0 for name in GENERATIONS])
"""Hops on Hopper against Ampere: all-gathers of small messages take 10 us instead of 15."""
_SCALE_UP = {"volta": 0.8, "ampere": 0.8, "hopper": 0.824, "blackwell": 0.802, "cdna2": 0.75,
             "cdna3": 0.75, "cdna4": 0.75}
SCALE_UP_SHARE = np.array([_SCALE_UP.get(name, 0.8) for name in GENERATIONS])
"""Payload over raw rate: NCCL counts 20 of 25 (Volta, Ampere), 20.6 of 25 (Hopper) and 40.1 of 50
(Blackwell) GB/s per NVLink; xGMI of MI300X moves 48 of 64 (ROCm blog mi300x-rccl-xgmi)."""
_NVLS = {"hopper": 0.85, "blackwell": 0.74}
NVLS_SHARE = np.array([_NVLS.get(name, 0.0) for name in GENERATIONS])
"""NCCL nvlsEfficiency; 0 where the switch cannot add."""
_SCALE_OUT = {"pcie": 0.76, "slingshot": 0.78, "efa": 0.85, "ethernet": 0.85, "roce": 0.93}
SCALE_OUT_SHARE = np.array([_SCALE_OUT.get(name, 0.96) for name in LINK_KINDS])
"""Of the adapters' rate: NCCL counts 12 GB/s of 12.5 for InfiniBand and 12 of 15.75 for PCIe.
Slingshot lies between 36 of 50 GB/s per node (Polaris) and 92 of 100 (a Cray EX with MI250X)."""
ALL_TO_ALL_SHARE = np.where(np.array(LINK_KINDS) == "slingshot", 0.6, 1.0)
"""Of what is left for an all-to-all: GPUs that share adapters meet at their receivers
(Polaris, four GPUs on two adapters: 5.4 of 12.5 GB/s each)."""

_LL_RATES = {"volta": [39.0, 39.0, 20.4], "ampere": [87.7, 22.5, 19.0],
             "hopper": [141.0, 45.0, 35.0], "blackwell": [282.0, 90.0, 70.0]}
LL_RATE = np.array([_LL_RATES.get(name, _LL_RATES["ampere"]) for name in GENERATIONS]) * GIGA
"""Most bus bandwidth of LL on 1, 2 and at least 4 nodes (NCCL llMaxBws)."""
LL_SHARE, LL128_SHARE, TREE_SHARE = 0.5, 0.92, 0.92
"""Of the ring's rate (NCCL): LL sends as many flags as data, LL128 15 of 16 bytes."""


def hop_s(table: Floats, kind: Ints, protocol: int) -> Floats:
    """Return the latency of one hop of every row, shape (rows,)."""
    return np.asarray(table[np.minimum(kind, len(table) - 1), protocol])
