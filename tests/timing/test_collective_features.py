"""Columns that describe a collective to the learned model."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.lowering.tables import (
    GENERATIONS, LINK_KINDS, CollectiveKind, CollectiveTable, NetworkTable,
)
from predictor.timing.collective_features import (
    COLLECTIVE_FEATURES, NETWORK_FEATURES, collective_features,
)
from predictor.timing.collectives import collective_times

KINDS = list(CollectiveKind)
NETWORKS = NetworkTable(
    generation=np.array([GENERATIONS.index("ampere"), GENERATIONS.index("cdna3")]),
    gpus_per_node=np.array([8, 8]), domain=np.array([8, 8]),
    intra_kind=np.array([LINK_KINDS.index("nvlink-switch"), LINK_KINDS.index("xgmi")]),
    intra_bytes_per_s=np.array([300e9, 448e9]), intra_latency_s=np.array([2e-6, 3e-6]),
    inter_kind=np.array([LINK_KINDS.index("infiniband"), LINK_KINDS.index("roce")]),
    inter_bytes_per_s=np.array([25e9, 50e9]), nic_bytes_per_s=np.array([25e9, 50e9]),
    inter_latency_s=np.array([5e-6, 6e-6]))


def table(kind, size, ranks, domains, network=0):
    kind, size, ranks, domains, network = np.broadcast_arrays(
        np.atleast_1d(kind), size, ranks, domains, network)
    ones = np.ones(len(kind), dtype=np.int64)
    return CollectiveTable(
        kind=kind.astype(np.int64), network=network.astype(np.int64), bytes=size.astype(float),
        group_size=ranks.astype(np.int64), ranks_per_domain=np.maximum(1, ranks // domains),
        domains=domains.astype(np.int64), stride=ones, concurrent=ones)


def features(rows):
    found = collective_features(rows, NETWORKS, collective_times(rows, NETWORKS))
    assert found.dtype == np.float32 and found.shape == (len(rows), len(COLLECTIVE_FEATURES))
    return {name: found[:, column] for column, name in enumerate(COLLECTIVE_FEATURES)}


def test_a_message_is_described_by_logarithms_and_its_kind():
    found = features(table(CollectiveKind.ALL_GATHER, 2.0**20, 16, 2))
    assert (found["bytes"][0], found["bytes_per_rank"][0], found["ranks"][0]) == (20, 16, 4)
    assert (found["ranks_per_domain"][0], found["domains"][0]) == (3, 1)
    kinds = {name: found[name][0] for name in COLLECTIVE_FEATURES if name.startswith("is_")}
    assert [name for name, value in kinds.items() if value] == ["is_all_gather"]
    assert len(kinds) == len(KINDS)


def test_what_a_group_does_not_use_is_blank():
    found = features(table(CollectiveKind.ALL_REDUCE, 2.0**20, [8, 2, 16], [1, 2, 2]))
    assert np.isnan(found["inter_kind"]).tolist() == [True, False, False]
    assert np.isnan(found["intra_kind"]).tolist() == [False, True, False]
    assert found["intra_reach"][0] == pytest.approx(0.8)
    assert set(NETWORK_FEATURES) <= set(COLLECTIVE_FEATURES)


def test_small_messages_are_latency_and_large_ones_bandwidth():
    found = features(table(CollectiveKind.ALL_REDUCE, [16.0, 2.0**36], 8, 1))
    assert found["latency_share"][0] == pytest.approx(1, abs=0.01)
    assert found["bandwidth_share"][1] == pytest.approx(1, abs=0.02)
    assert found["slope_up"][0] < 0.01 and found["slope_up"][1] > 0.99
    assert found["over_crossing"][0] < 0 < found["over_crossing"][1]
    # NCCL counts 80 % of NVLink 3 as payload.
    assert 2.0 ** found["bus_to_link"][1] == pytest.approx(0.8, rel=0.05)


def test_networks_tell_apart_and_names_do_not_enter():
    found = features(table(CollectiveKind.ALL_REDUCE, 2.0**24, 8, 1, [0, 1]))
    assert found["generation"].tolist() == [GENERATIONS.index("ampere"), GENERATIONS.index("cdna3")]
    assert found["intra_kind"][0] != found["intra_kind"][1]


@given(kind=st.sampled_from(KINDS), size=st.floats(1, 1e11), local=st.integers(1, 8),
       domains=st.integers(1, 64), network=st.integers(0, 1))
def test_every_column_but_blanks_is_finite(kind, size, local, domains, network):
    if local * domains < 2:
        domains = 2
    found = features(table(kind, size, local * domains, domains, network))
    blank = {name for name, values in found.items() if not np.isfinite(values).all()}
    unused = ({"inter_kind"} if domains == 1 else set()) | (
        {"intra_kind", "intra_reach", "domain"} if local == 1 else set())
    assert blank == unused
    assert 0 < found["latency_share"][0] <= 1 + 1e-6


def test_between_two_sizes_the_physics_moves_smoothly():
    sizes = 2.0 ** np.arange(10, 32, 0.125)
    found = features(table(CollectiveKind.ALL_GATHER, sizes, 8, 1))
    assert (np.diff(found["latency_share"]) <= 1e-6).all()
    assert np.abs(np.diff(found["bus_to_link"])).max() < 0.15


def test_no_rows_give_no_rows():
    none = table(0, [1.0], 2, 1).take(np.zeros(0, dtype=np.int64))
    assert collective_features(none, NETWORKS, np.zeros(0)).shape == (0, len(COLLECTIVE_FEATURES))
