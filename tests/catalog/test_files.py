"""A user's own file: from a preset or from nothing, with every mistake told plainly."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from predictor.catalog import load_cluster, load_gpu, load_model
from predictor.spec.cluster import Cluster
from predictor.spec.errors import InputError


@pytest.fixture
def write(tmp_path):
    """Return a function that writes text to a file and returns its path."""
    def _write(text: str | bytes, name: str = "mine.yaml") -> str:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return _write


def problems(load, path):
    """Return the problems of the error that loading raises."""
    with pytest.raises(InputError) as caught:
        load(path)
    return [str(problem) for problem in caught.value.problems]


def test_one_level_of_a_preset_can_be_changed_by_its_name(write):
    path = write("base: perlmutter\nlevels:\n  inter-node: {bandwidth_bytes_per_s: 1.2e9}\n")
    cluster, base = load_cluster(path, nodes=32), load_cluster("perlmutter", nodes=32)
    assert cluster.levels[1].bandwidth_bytes_per_s == 1.2e9
    assert cluster.levels[0] == base.levels[0] and cluster.groups == base.groups
    assert cluster.name == "mine"


@pytest.mark.parametrize("number", ["1.2e9", "1.2E+9", "12e8", "1200000000", "1.2e+09"])
def test_floats_may_be_written_as_everywhere_else(write, number):
    path = write(f"base: dgx-h100\nlevels: {{inter-node: {{bandwidth_bytes_per_s: {number}}}}}")
    assert load_cluster(path).levels[1].bandwidth_bytes_per_s == 1.2e9


def test_a_node_size_takes_the_levels_with_it(write):
    cluster = load_cluster(write("base: a100-hdr-4nic\ngpus_per_node: 4\nnodes: 3\n"))
    assert cluster.num_gpus == 12
    assert cluster.levels[0].span == 4
    assert cluster.levels[1].bandwidth_per_gpu_bytes_per_s == 25e9


def test_a_gpu_may_start_from_another(write):
    text = "base: dgx-h100\ngpu: {base: H100, name: tuned, memory_bandwidth_bytes_per_s: 3.0e12}"
    gpu = load_cluster(write(text)).gpu
    assert (gpu.name, gpu.memory_bandwidth_bytes_per_s, gpu.sm_count) == ("tuned", 3e12, 132)


def test_a_cluster_without_a_base(write):
    text = """
gpu: L40S
gpus_per_node: 4
nodes: 2
levels:
  - {name: intra-node, kind: pcie, span: 4, bandwidth_bytes_per_s: 31.5e9, latency_s: 5e-6}
  - {name: inter-node, kind: ethernet, bandwidth_bytes_per_s: 12.5e9, latency_s: 1e-5}
"""
    cluster = load_cluster(write(text))
    assert (cluster.num_gpus, cluster.gpu.name, cluster.levels[0].latency_s) == (8, "l40s", 5e-6)


def test_groups_of_different_gpus(write):
    text = """
base: dgx-a100-80gb
groups:
  - {gpu: A100-80GB, gpus_per_node: 8, nodes: 2}
  - {gpu: A100-40GB, gpus_per_node: 8, nodes: 1}
"""
    path = write(text)
    assert load_cluster(path).num_gpus == 24
    with pytest.raises(InputError, match="exactly one group"):
        load_cluster(path, nodes=4)


def test_a_model_from_a_preset_in_json(write):
    model = load_model(write('{"base": "llama-3-70b", "num_layers": 12}', "short.json"))
    assert (model.name, model.num_layers, model.num_query_groups) == ("short", 12, 8)


def test_a_gpu_file(write):
    assert load_gpu(write("base: h100\ntdp_w: 500")).tdp_w == 500


def test_a_preset_is_not_hidden_by_a_file_of_its_name(tmp_path, monkeypatch):
    (tmp_path / "perlmutter").write_text("nonsense")
    monkeypatch.chdir(tmp_path)
    assert load_cluster("perlmutter").groups[0].gpus_per_node == 4


def test_a_file_without_a_suffix_is_found(tmp_path, monkeypatch):
    (tmp_path / "ours").write_text("base: dgx-h100\nnodes: 3")
    monkeypatch.chdir(tmp_path)
    assert load_cluster("ours").num_gpus == 24


@pytest.mark.parametrize(("text", "told"), [
    ("base: dgx-h1000", "did you mean dgx-h100"),
    ("base: 3", "base must be the name of a preset"),
    ("base: dgx-h100\nlevel: {}", "unknown key 'level'"),
    ("base: dgx-h100\nlevels: {inter_node: {}}", "did you mean inter-node"),
    ("levels: {inter-node: {}}\ngpu: h100", "no base to change"),
    ("base: dgx-h100\nlevels: {inter-node: 3}", "changed by a mapping"),
    ("base: dgx-h100\nlevels: {inter-node: {speed: 3}}", "unknown key 'speed'"),
    ("base: dgx-h100\nlevels: {inter-node: {bandwidth_bytes_per_s: fast}}", "valid number"),
    ("base: dgx-h100\nlevels: {inter-node: {bandwidth_bytes_per_s: .inf}}", "finite"),
    ("base: dgx-h100\nlevels: {inter-node: {bandwidth_bytes_per_s: -1}}", "above 0"),
    ("base: dgx-h100\ngpu: h100-smx", "did you mean h100-sxm"),
    ("base: dgx-h100\nnodes: many", "valid integer"),
    ("base: dgx-h100\nnodes: 2\ngroups: []", "groups is given too"),
    ("gpu: h100", "a value is required"),
    ("- base: dgx-h100", "does not hold a mapping"),
    ("1: 2", "does not hold a mapping"),
    ("", "does not hold a mapping"),
    ("base: [", "cannot read"),
    ("base: a\nbase: b", "given twice"),
    ("a: &x [1]\nb: *x", "aliases"),
    ("when: 2024-01-01", "not plain JSON"),
    ("base: dgx-h100\nname: !!python/object:os.system x", "cannot read"),
])
def test_a_mistake_in_a_cluster_file_is_told(write, text, told):
    assert any(told in problem for problem in problems(load_cluster, write(text)))


def test_all_mistakes_are_told_at_once_with_their_place(write):
    told = problems(load_model, write("base: llama-3-8b\nnum_layers: 0\nlayers: 3\n"))
    assert len(told) >= 1 and all("mine.yaml" in problem for problem in told)
    told = problems(load_cluster, write("base: dgx-h100\ncolour: red\nshape: round\n"))
    assert len(told) == 2


@pytest.mark.parametrize(("content", "name", "told"), [
    (b"\x7fELF\x00\xff\xfe", "binary.yaml", "not UTF-8"),
    (b"\x00\x01", "nul.yaml", "cannot read"),
    (b"a: 1\n" * 300_000, "huge.yaml", "larger than"),
    (b"[" * 100_000, "deep.json", "cannot read"),
    (b"[" * 5_000, "deep.yaml", "cannot read"),
    (b'{"nodes": NaN}', "nan.json", "not a number"),
    (b'{"nodes": 1, "nodes": 2}', "twice.json", "given twice"),
    (b"9" * 10_000, "digits.json", "cannot read"),
])
def test_an_unreadable_file_is_told(write, content, name, told):
    assert told in problems(load_cluster, write(content, name))[0]


def test_a_missing_file_and_a_folder_are_told(tmp_path):
    assert "No such file" in problems(load_cluster, str(tmp_path / "none.yaml"))[0]
    assert "not a regular file" in problems(load_cluster, f"{tmp_path}/")[0]
    assert "not a regular file" in problems(load_cluster, "/dev/zero")[0]
    assert problems(load_cluster, "a\0b.yaml")
    assert problems(load_cluster, "x" * 5000 + ".yaml")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["dgx-h100", "h100", "inter-node"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["base", "gpu", "nodes", "levels", "groups", "gpus_per_node", "name",
                         "inter-node", "span", "x"]), inner, max_size=4), max_leaves=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.dictionaries(
    st.sampled_from(["base", "gpu", "nodes", "levels", "groups", "gpus_per_node", "name"]),
    VALUES | st.just("dgx-h100"), max_size=5))
def test_any_mapping_is_a_cluster_or_a_told_mistake(tmp_path: Path, mapping):
    path = tmp_path / "any.json"
    path.write_text(json.dumps(mapping))
    try:
        assert isinstance(load_cluster(path), Cluster)
    except InputError as error:
        assert error.problems
