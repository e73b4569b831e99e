"""What NCCL's algorithms and protocols cost: steps, latencies and shares of the link rate.

Latencies follow NCCL's own tuning model (src/graph/tuning.cc: base and per-hop latencies of LL,
LL128 and Simple); shares of the link rate were read off published nccl-tests runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictor.lowering.tables import GENERATIONS, LINK_KINDS

MICRO = 1e-6


@dataclass(frozen=True, slots=True)
class Protocol:
    """Latencies in seconds, rate as a share of what Simple reaches."""

    base_s: float
    scale_up_hop_s: float
    scale_out_hop_s: float
    share: float


PROTOCOLS = (
    Protocol(6.6 * MICRO, 0.6 * MICRO, 2.7 * MICRO, 0.3),
    Protocol(14.0 * MICRO, 1.3 * MICRO, 4.0 * MICRO, 0.9),
    Protocol(8.4 * MICRO, 4.0 * MICRO, 14.0 * MICRO, 1.0),
)
"""LL flags every 8 bytes, LL128 every 128, Simple synchronises chunks."""

_SCALE_UP = {"volta": 0.83, "ampere": 0.79, "hopper": 0.8, "blackwell": 0.68, "cdna2": 0.6,
             "cdna3": 0.7, "cdna4": 0.7}
SCALE_UP_SHARE = np.array([_SCALE_UP.get(name, 0.75) for name in GENERATIONS])
"""Bus bandwidth of a large ring inside a node over the data sheet's rate of one direction."""
_NVLS = {"hopper": 1.05, "blackwell": 0.92}
NVLS_SHARE = np.array([_NVLS.get(name, 0.0) for name in GENERATIONS])
"""The same for an all-reduce summed in the switch (NVLink SHARP)."""
NVLS_FROM = 6
"""Ranks inside the domain from which NVLS beats the ring on measured Hopper and Blackwell nodes."""
NVLS_LATENCY_S = 25 * MICRO
SCALE_OUT_SHARE = 0.93
"""Of the adapters' rate, by ring collectives."""
ALL_TO_ALL_SHARE = 0.9
SEND_RECV_SHARE = 0.8
SWITCHED = LINK_KINDS.index("nvlink-switch")
MESH = LINK_KINDS.index("nvlink-mesh")
XGMI = LINK_KINDS.index("xgmi")
PCIE = LINK_KINDS.index("pcie")
