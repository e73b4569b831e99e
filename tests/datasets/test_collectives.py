"""Reading tables of measured collectives."""

import pandas as pd
import pytest

from predictor.datasets.collective_links import scale_out, scale_up
from predictor.datasets.collectives import read_collectives
from predictor.lowering.tables import LINK_KINDS, CollectiveKind
from predictor.spec.errors import InputError


ROW = {"source": "us", "system": "DGX", "gpu": "A100 SXM 80GB", "nodes": 2, "world_size": 16,
       "intra_link": "NVLink3/NVSwitch", "inter_link": "InfiniBand HDR 200G/GPU",
       "nic_gbps_per_gpu": 200.0, "library": "NCCL", "collective": "all_reduce",
       "bytes": 2**20, "time_us": 80.0, "flag": None}


def read(**changes):
    return read_collectives(pd.DataFrame([ROW | changes]))


def test_a_row_becomes_a_group_on_its_machine():
    found = read()
    table, networks = found.table, found.networks
    assert found.measured_s[0] == pytest.approx(80e-6)
    assert (table.kind[0], table.group_size[0]) == (CollectiveKind.ALL_REDUCE, 16)
    assert (table.ranks_per_domain[0], table.domains[0]) == (8, 2)
    assert networks.inter_bytes_per_s[0] == 25e9
    assert networks.intra_bytes_per_s[0] == 300e9
    assert LINK_KINDS[networks.intra_kind[0]] == "nvlink-switch"


@pytest.mark.parametrize(("changes", "why"), [
    ({"flag": "misconfigured_network"}, "flagged as broken"),
    ({"collective": "gather"}, "unknown collective"),
    ({"library": "vLLM custom all-reduce"}, "not NCCL or RCCL"),
    ({"gpu": "unknown"}, "GPU is not in the catalogue"),
    ({"intra_link": "unknown"}, "unknown links inside the node"),
    ({"time_us": 0.0}, "no time"),
    ({"world_size": 1}, "blank size"),
    ({"nic_gbps_per_gpu": None}, "rate of the adapters is not stated"),
    ({"nodes": 1, "world_size": 8, "bytes": 2**32}, "faster than the links allow"),
])
def test_a_row_that_cannot_be_scored_says_why(changes, why):
    found = read(**changes)
    assert len(found) == 0
    assert found.refused == (("0", why),)


def test_a_table_without_the_columns_is_refused():
    with pytest.raises(InputError, match="time_us"):
        read_collectives(pd.DataFrame([{"gpu": "A100"}]))


@pytest.mark.parametrize(("text", "kind", "adapter"), [
    ("Slingshot-11 2x200G/node", "slingshot", 25e9), ("EFA v1 4x100G", "efa", 12.5e9),
    ("EFA 100G/node", "efa", 12.5e9), ("RoCE 400G/GPU (gIB)", "roce", None),
    ("InfiniBand NDR", "infiniband", None), ("GPUDirect-TCPXO 8x200G", "ethernet", 25e9)])
def test_adapters_are_read_from_words(text, kind, adapter):
    found = scale_out(text)
    assert (found.kind, found.adapter_bytes_per_s) == (kind, adapter)


def test_bridged_pairs_are_domains_of_two_joined_by_pcie():
    found = read(gpu="A100 PCIe 80GB (pairwise NVLink)", nodes=1, world_size=4,
                 intra_link="NVLink bridge pairs + PCIe", nic_gbps_per_gpu=None)
    assert (found.table.domains[0], found.table.ranks_per_domain[0]) == (2, 2)
    assert LINK_KINDS[found.networks.inter_kind[0]] == "pcie"
    assert found.nodes[0] == 1


def test_links_that_no_one_names_are_unknown():
    assert scale_up("unknown", "A100") is None


@pytest.mark.reference
def test_the_public_table_is_read_and_its_refusals_counted(reference):
    found = read_collectives(reference / "collectives" / "collectives.parquet")
    assert len(found) > 30_000
    assert len(found) + len(found.refused) == 51_315
    assert len(found.refusals()) <= 10
