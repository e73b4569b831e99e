"""Every preset loads, has a source and can be found under the names that people use."""

import json
import subprocess
import sys
import time

import pytest

from predictor.catalog import list_entries, load_cluster, load_gpu, load_model
from predictor.catalog.data import entries
from predictor.catalog.names import spelling
from predictor.lowering.tables import GENERATIONS, NetworkTable
from predictor.spec.errors import InputError

KINDS = {"gpus": load_gpu, "clusters": load_cluster, "models": load_model}
ALL = [(kind, name) for kind in KINDS for name in entries(kind)]


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_preset_loads_under_its_own_name(kind, name):
    assert KINDS[kind](name).name == name


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_preset_has_a_source_and_a_summary(kind, name):
    entry = entries(kind)[name]
    assert len(entry["source"]) > 15 and entry["summary"]


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_lower_case_with_hyphens(kind):
    assert all(name == name.lower() and not set(name) & set(" _/") for name in entries(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_no_spelling_means_two_entries(kind):
    owners = {}
    for name, entry in entries(kind).items():
        for spelled in {spelling(word) for word in (name, *entry["aliases"])}:
            assert owners.setdefault(spelled, name) == name, spelled


def test_catalogue_is_as_large_as_promised():
    counts = {kind: len(entries(kind)) for kind in KINDS}
    assert counts["gpus"] >= 31 and counts["clusters"] >= 14 and counts["models"] >= 30


@pytest.mark.parametrize(("spelled", "name"), [
    ("A100-80GB", "a100-sxm-80gb"), ("A100-SXM4-80GB", "a100-sxm-80gb"),
    ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"), ("A100-SXM4-40GB (DGX-A100)", "a100-sxm-40gb"),
    ("H100", "h100-sxm"), ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("h100_80gb", "h100-sxm"),
    ("H100-SXM-96GB-HBM2e-500W", "h100-sxm-96gb-hbm2e"), ("H200-NVL/PCIe", "h200-nvl"),
    ("V100-32GB", "v100-sxm2-32gb"), ("V100 (inferred)", "v100-sxm2-32gb"),
    ("V100-SXM3-32GB (DGX-2)", "v100-sxm3-32gb"), ("GH200-120GB", "gh200-96gb"),
    ("GB200-NVL72", "gb200"), ("B300-SXM-288GB", "b300-sxm"), ("MI300X", "mi300x"),
    ("MI250X (GCD)", "mi250x-gcd"), ("l40s", "l40s"), ("Tesla T4", "t4"),
])
def test_gpu_is_found_in_the_spellings_of_tools_and_tables(spelled, name):
    assert load_gpu(spelled).name == name


@pytest.mark.parametrize("name", entries("gpus"))
def test_gpu_figures_agree_with_each_other(name):
    gpu = load_gpu(name)
    assert gpu.architecture in GENERATIONS
    assert 0.9 < gpu.usable_memory_bytes / gpu.memory_bytes < 1.08
    assert gpu.fp32_flops <= gpu.fp16_flops <= max(gpu.fp8_flops, gpu.fp16_flops)
    core = gpu.architecture == "cpu"  # no matrix units, but a higher clock
    assert (5 if core else 25) < gpu.fp16_flops / gpu.memory_bandwidth_bytes_per_s < 500
    assert 0.2e9 < gpu.boost_clock_hz < (6e9 if core else 3e9)


def test_v100_has_no_bf16_and_a100_no_fp8():
    assert load_gpu("v100").bf16_flops == 0
    assert load_gpu("a100").fp8_flops == 0
    assert load_gpu("h100").fp4_flops == 0


@pytest.mark.parametrize("name", entries("clusters"))
def test_cluster_levels_reach_from_the_node_to_everything(name):
    cluster = load_cluster(name)
    assert cluster.levels[-1].span == 0
    assert cluster.levels[0].span % cluster.groups[0].gpus_per_node == 0
    assert len(NetworkTable.from_clusters([cluster])) == 1


@pytest.mark.parametrize(("name", "intra", "inter"), [
    ("dgx-h100", 450e9, 50e9), ("dgx-a100-80gb", 300e9, 25e9), ("a100-hdr-4nic", 300e9, 12.5e9),
    ("perlmutter", 300e9, 25e9), ("aws-p4d", 300e9, 6.25e9), ("aws-p5", 450e9, 50e9),
    ("gb200-nvl72", 900e9, 50e9), ("dgx-v100", 150e9, 6.25e9), ("frontier", 350e9, 12.5e9),
    ("mi300x", 448e9, 50e9),
])
def test_bandwidth_per_gpu_is_what_the_data_sheet_gives(name, intra, inter):
    levels = load_cluster(name).levels
    assert levels[0].bandwidth_per_gpu_bytes_per_s == pytest.approx(intra)
    assert levels[-1].bandwidth_per_gpu_bytes_per_s == pytest.approx(inter)


def test_a_rack_of_nvl72_is_one_domain_of_18_nodes():
    cluster = load_cluster("gb200-nvl72", nodes=36)
    assert (cluster.levels[0].span, cluster.groups[0].gpus_per_node) == (72, 4)
    assert cluster.num_gpus == 144


def test_nodes_replace_the_number_of_the_preset():
    assert load_cluster("dgx-h100", nodes=16).num_gpus == 128


@pytest.mark.parametrize(("load", "name", "meant"), [
    (load_gpu, "h100-smx", "h100-sxm"), (load_cluster, "dgx-h1000", "dgx-h100"),
    (load_model, "lama-3-70b", "llama-3-70b"), (load_model, "gpt-3-175", "gpt-3-175b"),
])
def test_unknown_name_is_answered_with_what_was_meant(load, name, meant):
    with pytest.raises(InputError, match=f"did you mean .*{meant}"):
        load(name)


@pytest.mark.parametrize("name", ["", "x" * 100_000, "(" * 50_000, "\0", "\ud800", "模型"])
def test_strange_name_is_refused_in_one_line(name):
    for load in KINDS.values():
        with pytest.raises(InputError) as caught:
            load(name)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("nodes", [0, -1])
def test_a_cluster_without_nodes_is_refused(nodes):
    with pytest.raises(InputError, match="nodes"):
        load_cluster("dgx-h100", nodes=nodes)


@pytest.mark.parametrize("kind", [*KINDS, "schedules"])
def test_listing_names_summarises_and_cites_everything(kind):
    listed = list_entries(kind)
    assert listed and all(name and summary and source for name, summary, source in listed)


def test_loading_reads_only_what_is_needed():
    code = ("import sys, json; from predictor.catalog import load_model; load_model('llama-3-8b');"
            "from predictor.catalog.data import entries;"
            "print(json.dumps([entries.cache_info().currsize, 'pydantic' in sys.modules]))")
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                             check=True).stdout
    assert json.loads(printed) == [1, False]


def test_a_cluster_loads_within_ten_milliseconds():
    def seconds() -> float:
        entries.cache_clear()
        start = time.perf_counter()
        load_cluster("dgx-h100", nodes=8)
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) < 0.010
