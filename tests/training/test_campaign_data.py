"""What ``profile`` wrote is what ``train`` reads."""

import pytest
from campaigns import HEAD, KERNELS, profiled

from predictor.datasets.sources.campaign import read_collectives, read_kernels
from predictor.spec.errors import InputError
from predictor.training.sources import collective_tables, kernel_tables

NAMED = HEAD.replace("cpu-core", "h100-sxm")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    profiled(data / "campaigns" / "one", NAMED + KERNELS + (
        "  - {family: attention, batch: 1, seq: 16, seq_kv: 16, heads: 2, kv_heads: 2, head_dim: 8,"
        " dtype: fp32, causal: true}\n"
        "collectives:\n  - {collective: [all_reduce, all_gather], dtype: fp32, bytes: 65536, "
        "ranks: 2}\n  - {collective: all_reduce, dtype: fp32, bytes: 4096, ranks: 4, group: 2, "
        "stride: 2, groups: 2}\n"))
    return data


def test_kernels_of_campaigns_are_training_data(data):
    (table,) = kernel_tables(data, wanted=("campaign",))
    assert table.name == "campaign one"
    assert table.frame["op"].value_counts().to_dict() == {"linear": 6, "attention": 2}
    assert set(table.frame["gpu"]) == {"h100-sxm"}
    assert table.sha256 == kernel_tables(data, wanted=("campaign",))[0].sha256


def test_collectives_of_plain_groups_are_training_data(data):
    (table,) = collective_tables(data)
    assert table.frame["collective"].tolist() == ["all_reduce", "all_gather"]
    row = table.frame.iloc[0]
    assert row["busbw_GBps"] == pytest.approx(65536 / row["time_us"] * 1e-3)


def test_one_campaign_is_data_too(data):
    assert len(kernel_tables(data / "campaigns" / "one", wanted=("campaign",))[0].frame) == 8


def test_a_campaign_without_a_kind_has_an_empty_table(data, tmp_path):
    assert len(read_kernels(tmp_path)) == len(read_collectives(tmp_path)) == 0


def test_an_unknown_gpu_is_refused(tmp_path):
    store = profiled(tmp_path / "a", HEAD.replace("cpu-core", "h1000") + KERNELS)
    with pytest.raises(InputError, match="no GPU called 'h1000'"):
        read_kernels(store.folder)
