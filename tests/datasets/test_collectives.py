"""Reading tables of measured collectives."""

import pandas as pd
import pytest

from predictor.datasets.collective_links import scale_out, scale_up
from predictor.datasets.collective_schema import COLUMNS, normalise, stack, validate
from predictor.datasets.collectives import (
    DISTURBED, TOO_FAST, TOO_SLOW, learnable, read_collectives, tidy_collectives,
)
from predictor.datasets.physical import LOST_SERIES
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
    ({"library": "vLLM custom all-reduce"}, "not NCCL, RCCL or gloo"),
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


def curve(sizes, times_us, **changes):
    return read_collectives(pd.DataFrame([
        ROW | {"bytes": size, "time_us": time} | changes
        for size, time in zip(sizes, times_us, strict=True)]))


def test_a_series_that_is_nearly_all_impossible_is_refused_as_a_whole():
    sizes = [2**30 + step * 2**20 for step in range(40)]
    found = curve(sizes, [100.0] * 39 + [50_000.0])
    assert len(found) == 0
    assert found.refusals() == {TOO_FAST: 39, LOST_SERIES: 1}


def test_a_few_impossible_times_leave_the_others():
    sizes = [2**30 + step * 2**20 for step in range(40)]
    found = curve(sizes, [100.0] * 20 + [50_000.0] * 20)
    assert len(found) == 20 and found.refusals() == {TOO_FAST: 20}


def test_runs_that_bypass_the_adapters_are_scored_but_not_learned_from():
    sizes = [2**20, 2**28, 2**29, 2**30]
    # 2 x 8 A100 with 8 x 25 GB/s: 3.7 GB/s of bus bandwidth is no InfiniBand.
    slow = curve(sizes, [1_000.0] + [size * 2 / 3.7e3 for size in sizes[1:]])
    assert len(slow) == 4
    assert learnable(slow).refusals() == {TOO_SLOW: 4}
    good = curve(sizes, [150.0] + [size * 2 / 150e3 for size in sizes[1:]])
    assert len(learnable(good)) == 4


def test_a_single_slow_message_does_not_take_its_series_along():
    sizes = [2**20, 2**28, 2**29, 2**30]
    found = curve(sizes, [150.0, 2**29 / 150e3, 2**30 / 150e3, 2**31 / 3.7e3])
    assert learnable(found).ids == ("0", "1", "2")


def test_times_far_above_those_of_larger_messages_are_not_learned_from():
    found = curve([2**20, 2**21, 2**22], [90.0, 500.0, 150.0])
    kept = learnable(found)
    assert kept.ids == ("0", "2") and kept.refused == (("1", DISTURBED),)
    assert kept.measured_s.tolist() == pytest.approx([90e-6, 150e-6])
    assert len(kept.table) == len(kept.nodes) == len(kept.licence) == 2


def test_equal_sizes_do_not_judge_each_other():
    assert len(learnable(curve([2**20, 2**20], [500.0, 90.0]))) == 2


def test_a_licence_that_no_cell_states_is_unknown():
    assert read().licence == ("unknown",)
    assert read(licence="MIT").licence == ("MIT",)


TIDY = ROW | {"licence": "MIT", "timing_kind": "event"}


def test_the_schema_fills_blanks_and_refuses_unknown_columns():
    found = validate(normalise(pd.DataFrame([TIDY])))
    assert tuple(found.columns) == COLUMNS
    assert found.at[0, "flag"] == found.at[0, "proto"] == ""
    assert found["algbw_GBps"].isna().all()
    assert len(stack([found, normalise(pd.DataFrame()), found])) == 2 and len(stack([])) == 0
    with pytest.raises(InputError, match="speed"):
        normalise(pd.DataFrame([TIDY | {"speed": 1}]))


def test_the_schema_names_every_column_that_breaks_it():
    bad = normalise(pd.DataFrame([TIDY | {
        "licence": "", "collective": "shuffle", "bytes": -1, "time_us": "fast", "in_place": 2,
        "timing_kind": "sundial"}]))
    with pytest.raises(InputError) as caught:
        validate(bad)
    assert {problem.where for problem in caught.value.problems} == {
        "licence", "collective", "bytes", "time_us", "in_place", "timing_kind"}


def test_public_rows_get_the_licence_of_their_source():
    columns = [name for name in COLUMNS if name not in ("licence", "timing_kind")]
    frame = normalise(pd.DataFrame([TIDY | {"source": name} for name in (
        "vidur_network", "xxrjun_nccl_tests_cluster", "somebody")]))[columns]
    found = validate(tidy_collectives(frame))
    assert found["licence"].tolist() == ["MIT", "Apache-2.0", "unknown"]
    assert found["timing_kind"].tolist() == ["kernel", "event", "event"]


@pytest.mark.reference
def test_the_public_table_is_tidy(reference):
    frame = tidy_collectives(reference / "collectives" / "collectives.parquet")
    assert len(validate(frame)) == 51_315
    alike = read_collectives(reference / "collectives" / "collectives.parquet")
    found = read_collectives(frame)
    assert found.ids == alike.ids and set(alike.licence) == {"unknown"}
    assert 27_000 < len(learnable(found)) < len(found)


@pytest.mark.reference
def test_the_public_table_is_read_is_read_and_its_refusals_counted(reference):
    found = read_collectives(reference / "collectives" / "collectives.parquet")
    assert len(found) > 30_000
    assert len(found) + len(found.refused) == 51_315
    assert len(found.refusals()) <= 10
