"""From a row's cells to a cluster."""

from __future__ import annotations

import pytest

from predictor.datasets.steps_machine import cluster_of, gpu_of
from predictor.spec.errors import InputError


@pytest.mark.parametrize(("text", "name"), [
    ("A100-SXM4-40GB (DGX-A100)", "a100-sxm-40gb"),
    ("V100 (inferred: the document names V100)", "v100-sxm2-32gb"),
    ("H100 96GB HBM2e", "h100-sxm-96gb-hbm2e"), ("A100 40GB PCIe", "a100-pcie-40gb"),
    ("H200-NVL/PCIe", "h200-nvl"), ("GB200-NVL72", "gb200"), ("NVIDIA H100 80GB HBM3", "h100-sxm")])
def test_gpu_names_as_tables_write_them(text, name):
    assert gpu_of(text).name == name


@pytest.mark.parametrize("text", ["Z9000", "/etc/hostname", "gpus.yaml"])
def test_an_unknown_gpu_is_refused_and_never_a_file(text):
    with pytest.raises(InputError, match="there is no GPU called"):
        gpu_of(text)


@pytest.mark.parametrize(("num_gpus", "per_node", "nodes"), [
    (16, 8, 2), (4, 4, 1), (36, 6, 6), (1, 1, 1), (280, 8, 35)])
def test_nodes_hold_all_gpus(num_gpus, per_node, nodes):
    cluster = cluster_of("H100-SXM5-80GB", num_gpus, 8, "", "")
    group = cluster.groups[0]
    assert (group.gpus_per_node, group.nodes) == (per_node, nodes)
    assert cluster.num_gpus == num_gpus


def test_a_blank_machine_is_the_gpus_usual_server():
    inner, outer = cluster_of("A100-SXM4-80GB", 16, None, "", "").levels
    assert (inner.kind, inner.span, inner.bandwidth_per_gpu_bytes_per_s) == (
        "nvlink-switch", 8, 300e9)
    assert (outer.kind, outer.bandwidth_per_gpu_bytes_per_s) == ("infiniband", 25e9)


def test_stated_adapters_are_shared_by_the_node():
    outer = cluster_of("A100-SXM4-80GB", 16, 8, "", "IB 4xHDR200 per node (800 Gb/s)").levels[1]
    assert outer.bandwidth_bytes_per_s == 25e9
    assert outer.bandwidth_per_gpu_bytes_per_s == 12.5e9


def test_a_nodes_sum_is_one_adapter_for_each_gpu():
    outer = cluster_of("H100-SXM5-80GB", 16, 8, "", "EFA 3200").levels[1]
    assert (outer.kind, outer.bandwidth_bytes_per_s) == ("efa", 50e9)
    assert outer.bandwidth_per_gpu_bytes_per_s == 50e9


def test_a_rack_is_one_domain():
    cluster = cluster_of("GB200-NVL72", 256, 4, "NVL72 NVLink5", "")
    assert cluster.groups[0].gpus_per_node == 4
    assert cluster.levels[0].span == 72


def test_a_lone_gpu_has_only_a_network():
    cluster = cluster_of("GH200-120GB", 128, 1, "", "Vista NDR InfiniBand (1 GPU per node)")
    assert [level.span for level in cluster.levels] == [1, 0]
    assert cluster.levels[1].bandwidth_per_gpu_bytes_per_s == 50e9


def test_boards_of_four_have_no_switch():
    assert cluster_of("A100-SXM4-80GB", 16, 4, "NVLink3", "").levels[0].kind == "nvlink-mesh"
    assert cluster_of("A100-SXM4-80GB", 4, 8, "NVLink3", "").levels[0].kind == "nvlink-switch"


def test_pcie_replaces_nvlink_where_the_row_says_so():
    inner = cluster_of("A100-SXM4-80GB", 8, 8, "PCIe Gen4", "").levels[0]
    assert (inner.kind, inner.bandwidth_per_gpu_bytes_per_s) == ("pcie", 31.5e9)
