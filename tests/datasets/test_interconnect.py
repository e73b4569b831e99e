"""Networks and NVLinks in words."""

from __future__ import annotations

import pytest

from predictor.datasets.interconnect import Adapters, ScaleUp, parse_adapters, parse_scale_up

GBIT = 1e9 / 8


@pytest.mark.parametrize(("text", "kind", "gbits", "count"), [
    ("IB 4xHDR200 per node (800 Gb/s)", "infiniband", 200, 4),
    ("8x HDR InfiniBand 200Gb/s per node (Selene)", "infiniband", 200, 8),
    ("4x Omni-Path 100Gb/s per node (Jean Zay)", "omni-path", 100, 4),
    ("1x InfiniBand EDR 100Gb/s per node", "infiniband", 100, 1),
    ("RDMA 400Gb/s per GPU", "roce", 400, None),
    ("IB NDR 400G (Eos; not stated in README)", "infiniband", 400, None),
    ("InfiniBand 200Gb/s per node", "infiniband", 200, 1),
    ("NDR InfiniBand (4 GPUs per node)", "infiniband", 400, None),
    ("8x400GbE RoCE", "roce", 400, 8),
    ("100Gb/s Ethernet", "ethernet", 100, 1),
    ("EFAv2 400 Gbps", "efa", 400, 1),
    ("EFA 3200", "efa", 3200, 1),
    ("3.2 Tbps InfiniBand", "infiniband", 3200, 1),
    ("400Gbps/GPU", None, 400, None),
])
def test_adapters(text, kind, gbits, count):
    assert parse_adapters(text) == Adapters(kind, pytest.approx(gbits * GBIT), count)


def test_storage_and_management_networks_do_not_count():
    text = ("Storage: 2x ConnectX-7 IB NDR 400Gb/s, Compute: 8x ConnectX-7 IB NDR 400Gb/s, "
            "Management: 100Gb/s Ethernet")
    assert parse_adapters(text) == Adapters("infiniband", 400 * GBIT, 8)


def test_the_fastest_of_several_networks_counts():
    found = parse_adapters("1x Ethernet 100Gb/Sec, 8x NVIDIA Quantum-2 CX7 InfiniBand (400Gb/s)")
    assert found == Adapters("infiniband", 400 * GBIT, 8)


def test_a_measured_rate_per_gpu_wins():
    found = parse_adapters("Perlmutter Slingshot-11 (NCCL measured ~1.2 GB/s per GPU)")
    assert found == Adapters("slingshot", 1.2e9, None)


@pytest.mark.parametrize("text", ["RoCE RDMA", "InfiniBand (not stated)",
                                  "Infiniband; Data bandwidth for GPU-PCIe: 504GB/s"])
def test_a_kind_alone_gives_no_rate(text):
    found = parse_adapters(text)
    assert found is not None
    assert found.bytes_per_s is None


@pytest.mark.parametrize("text", ["", "single node", "Gig Ethernet", "PCIe 64 GB/s"])
def test_no_network(text):
    assert parse_adapters(text) is None


@pytest.mark.parametrize(("text", "found"), [
    ("NVLink4/NVSwitch", ScaleUp(None, None)),
    ("NVLINK Gen4 900 GB/s + NVSWITCH Gen3", ScaleUp(None, 450e9)),
    ("NVLINK Gen5 1800 GB/s + NVSWITCH Gen5", ScaleUp(None, 900e9)),
    ("NVLink3 (4 links inter-GPU per source)", ScaleUp(None, 100e9)),
    ("18x 5th Gen NVLink, 14.4 TB/s aggregated bandwidth", ScaleUp(None, None)),
    ("4-way NVIDIA NVLINK bridge", ScaleUp("nvlink-mesh", None)),
    ("PCIe Gen4", ScaleUp("pcie", 31.5e9)),
    ("XGMI", ScaleUp(None, None)),
])
def test_links_inside_a_node(text, found):
    assert parse_scale_up(text) == found
