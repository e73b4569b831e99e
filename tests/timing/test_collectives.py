"""Times of collectives: hand-made groups on three published machines, and invariants."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictor.lowering.tables import (
    GENERATIONS, LINK_KINDS, CollectiveKind, CollectiveTable, NetworkTable,
)
from predictor.timing.collectives import collective_times

MIB = 2.0**20
BANDWIDTHS = ("intra_bytes_per_s", "inter_bytes_per_s", "nic_bytes_per_s")
KINDS = list(CollectiveKind)


def network(generation="ampere", domain=8, intra="nvlink-switch", intra_rate=300e9,
            inter="infiniband", inter_rate=25e9, nic_rate=None):
    whole = {"generation": GENERATIONS.index(generation), "gpus_per_node": domain,
             "domain": domain, "intra_kind": LINK_KINDS.index(intra),
             "inter_kind": LINK_KINDS.index(inter)}
    real = {"intra_bytes_per_s": intra_rate, "intra_latency_s": 2e-6,
            "inter_bytes_per_s": inter_rate, "nic_bytes_per_s": nic_rate or inter_rate,
            "inter_latency_s": 5e-6}
    return NetworkTable(**{name: np.array([value]) for name, value in whole.items()},
                        **{name: np.array([value]) for name, value in real.items()})


A100 = network()
H100 = network("hopper", intra_rate=450e9, inter_rate=50e9)
MI300X = network("cdna3", intra="xgmi", intra_rate=448e9, inter="roce", inter_rate=50e9)
NVL72 = network("blackwell", domain=72, intra_rate=900e9, inter_rate=50e9)


def seconds(machine, kind, size, ranks, domains=1, concurrent=1):
    table = CollectiveTable(
        kind=np.array([int(kind)]), network=np.array([0]), bytes=np.array([float(size)]),
        group_size=np.array([ranks]), ranks_per_domain=np.array([max(1, ranks // domains)]),
        domains=np.array([domains]), stride=np.array([1]), concurrent=np.array([concurrent]))
    return float(collective_times(table, machine)[0])


def bus_bandwidth(machine, size, ranks, domains=1):
    time_s = seconds(machine, CollectiveKind.ALL_REDUCE, size, ranks, domains)
    return 2 * (ranks - 1) / ranks * size / time_s


@pytest.mark.parametrize(("size", "ranks"), [(MIB, 1), (0.0, 8), (0.0, 1)])
def test_a_lone_rank_and_an_empty_message_take_no_time(size, ranks):
    assert all(seconds(A100, kind, size, ranks) == 0 for kind in KINDS)


def test_a_small_all_reduce_is_the_latency_of_a_tree_or_ring_of_eight():
    """LL: 6.6 us and 14 hops of 1 us; the bytes hardly count."""
    assert seconds(A100, CollectiveKind.ALL_REDUCE, 8, 8) == pytest.approx(20.6e-6, rel=0.02)


@pytest.mark.parametrize(("size", "measured_us"), [(MIB, 40), (8 * MIB, 128), (512 * MIB, 4295)])
def test_all_reduce_of_eight_a100_matches_nccl_tests(size, measured_us):
    """NCCL 2.27 on A100 SXM, aiconfigurator's nccl-tests runs (Apache-2.0)."""
    time_s = seconds(A100, CollectiveKind.ALL_REDUCE, size, 8)
    assert time_s == pytest.approx(measured_us * 1e-6, rel=0.15)


def test_the_switch_sums_on_hopper():
    """480 GB/s of bus bandwidth on eight H100, above their 450 GB/s links (DGX H100 sample output
    of NVIDIA dgxc-benchmarking: 477 GB/s at 4 GiB)."""
    assert bus_bandwidth(H100, 4096 * MIB, 8) == pytest.approx(477e9, rel=0.05)


def test_two_domains_beat_the_line_rate_and_more_do_not():
    """H200 on OCI: 481 GB/s on 2 nodes of 8 x 50 GB/s; H100 on VMware: 364 on 4 nodes."""
    assert bus_bandwidth(H100, 8192 * MIB, 16, 2) > 400e9
    assert bus_bandwidth(H100, 8192 * MIB, 32, 4) == pytest.approx(364e9, rel=0.1)


def test_bus_bandwidth_still_rises_past_512_mib():
    assert bus_bandwidth(A100, 4096 * MIB, 8) > 1.02 * bus_bandwidth(A100, 512 * MIB, 8)


def test_two_gpus_of_an_xgmi_node_see_one_link_of_seven():
    pair = seconds(MI300X, CollectiveKind.SEND_RECV, 1024 * MIB, 2)
    assert 1024 * MIB / pair <= 448e9 / 7


def test_an_all_gather_uses_the_adapters_of_every_rank_and_an_all_to_all_one_each():
    size = 1024 * MIB
    gather = seconds(A100, CollectiveKind.ALL_GATHER, size, 16, 2)
    scatter = seconds(A100, CollectiveKind.ALL_TO_ALL, size, 16, 2)
    assert 15 / 16 * size / gather > 150e9
    assert 8 / 16 * size / scatter < 25e9


def test_sibling_groups_share_the_adapters():
    """Eight strided groups with one rank in each node have an eighth of its adapters each; alone a
    group still drives one adapter only."""
    alone = seconds(A100, CollectiveKind.ALL_REDUCE, 1024 * MIB, 4, 4)
    beside = seconds(A100, CollectiveKind.ALL_REDUCE, 1024 * MIB, 4, 4, concurrent=8)
    assert alone == pytest.approx(beside)
    shared = network(inter_rate=25e9 / 8, nic_rate=25e9)
    alone = seconds(shared, CollectiveKind.ALL_REDUCE, 1024 * MIB, 4, 4)
    beside = seconds(shared, CollectiveKind.ALL_REDUCE, 1024 * MIB, 4, 4, concurrent=8)
    assert beside > 6 * alone


def test_seventy_two_gpus_are_one_domain():
    inside = seconds(NVL72, CollectiveKind.ALL_GATHER, 1024 * MIB, 72)
    assert inside < 0.7 * seconds(H100, CollectiveKind.ALL_GATHER, 1024 * MIB, 72, 9)


def test_pcie_collapses_with_ranks():
    pcie = network("ada", intra="pcie", intra_rate=31.5e9)
    assert bus_bandwidth(pcie, 256 * MIB, 8) < 0.6 * bus_bandwidth(pcie, 256 * MIB, 2)


def test_small_messages_slow_with_the_logarithm_of_nodes_in_a_tree_and_linearly_in_a_ring():
    def per_node(kind):
        few, many = (seconds(A100, kind, 1024, 8 * nodes, nodes) for nodes in (4, 64))
        return many / few

    assert per_node(CollectiveKind.ALL_REDUCE) < 3
    assert per_node(CollectiveKind.ALL_GATHER) > 8


def test_many_rows_equal_the_same_rows_one_by_one():
    sizes = np.array([1e3, 1e6, 1e9])
    ones = np.ones(3, dtype=np.int64)
    table = CollectiveTable(kind=0 * ones, network=0 * ones, bytes=sizes, group_size=16 * ones,
                            ranks_per_domain=8 * ones, domains=2 * ones, stride=ones,
                            concurrent=ones)
    single = [seconds(H100, CollectiveKind.ALL_REDUCE, size, 16, 2) for size in sizes]
    np.testing.assert_allclose(collective_times(table, H100), single)


machines = st.builds(
    network,
    generation=st.sampled_from(GENERATIONS), domain=st.sampled_from([4, 8, 16, 72]),
    intra=st.sampled_from(LINK_KINDS[:4]), intra_rate=st.floats(1e10, 2e12),
    inter=st.sampled_from(LINK_KINDS[4:]), inter_rate=st.floats(1e9, 2e11),
    nic_rate=st.floats(1e9, 2e11))
groups = st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3, 8, 64]),
                   st.integers(1, 8)).filter(lambda group: group[0] * group[1] > 1)
sizes = st.floats(1, 2e11)


@settings(max_examples=300, deadline=None)
@given(machines, st.sampled_from(KINDS), sizes, st.floats(1, 100), groups)
def test_more_bytes_are_never_faster(machine, kind, size, factor, group):
    local, domains, concurrent = group
    arguments = (local * domains, domains, concurrent)
    less = seconds(machine, kind, size, *arguments)
    assert np.isfinite(less)
    assert less > 0
    assert seconds(machine, kind, size * factor, *arguments) >= less


@settings(max_examples=300, deadline=None)
@given(machines, st.sampled_from(KINDS), sizes, groups, st.sampled_from(BANDWIDTHS))
def test_doubling_a_bandwidth_is_never_slower(machine, kind, size, group, name):
    local, domains, concurrent = group
    columns = {field: getattr(machine, field) for field in NetworkTable.__dataclass_fields__}
    faster = NetworkTable(**columns | {name: 2 * columns[name]})
    arguments = (kind, size, local * domains, domains, concurrent)
    assert seconds(faster, *arguments) <= seconds(machine, *arguments)


@settings(max_examples=300, deadline=None)
@given(machines, st.sampled_from(KINDS), sizes, groups)
def test_never_faster_than_the_links_of_one_rank(machine, kind, size, group):
    """A rank must send at least its share; sums and copies in the network spare it the rest."""
    local, domains, concurrent = group
    ranks = local * domains
    least = size * (1 - 1 / ranks)
    rate = (local > 1) * machine.intra_bytes_per_s[0] + (domains > 1) * max(
        machine.nic_bytes_per_s[0], machine.inter_bytes_per_s[0])
    assert seconds(machine, kind, size, ranks, domains, concurrent) >= least / rate


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [4096.0, MIB, 16 * MIB, 1024 * MIB])
@pytest.mark.parametrize("machine", [A100, H100, MI300X])
def test_a_group_across_nodes_is_slower_than_inside(machine, size, kind):
    across = seconds(machine, kind, size, 8, 2)
    assert across > seconds(machine, kind, size, 8)
