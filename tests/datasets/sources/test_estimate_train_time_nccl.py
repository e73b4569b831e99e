"""Reading estimate-train-time's collectives."""

from __future__ import annotations

from pathlib import Path

import pytest

from predictor.datasets.collective_schema import validate
from predictor.datasets.collectives import TOO_FAST, TOO_SLOW, learnable, read_collectives
from predictor.datasets.physical import LOST_SERIES
from predictor.datasets.sources.estimate_train_time_nccl import read
from predictor.spec.errors import InputError

A100, GH200 = "NVIDIAA100-SXM4-80GB", "NVIDIAGH200120GB"
HEADER = "shape,nodes,GPUsPerNode,dur(us)\n"


def write(root: Path, site: str, name: str, *rows: str, header: str = HEADER) -> Path:
    folder = root / site / "nccl"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(header + "".join(row + "\n" for row in rows))
    return root


def test_shapes_count_what_a_rank_puts_in(tmp_path: Path) -> None:
    write(tmp_path, "Perlmutter", f"{A100}_allgather_large_fp16_2_4.csv", "1000.0,2.0,4.0,500.0")
    write(tmp_path, "Perlmutter", f"{A100}_allreduce_fp16_2_4.csv", "1000.0,2.0,4.0,500.0")
    write(tmp_path, "Vista", f"{GH200}_p2p_fp16_2_1.csv", "1000,2,1,50.0")
    found = validate(read(tmp_path)).set_index("collective")
    assert found["bytes"].to_dict() == {"all_gather": 16000, "all_reduce": 2000, "sendrecv": 2000}
    assert found["world_size"].to_dict() == {"all_gather": 8, "all_reduce": 8, "sendrecv": 2}
    assert found.at["all_reduce", "busbw_GBps"] == pytest.approx(2000 * 1.75 / 500e-6 / 1e9)
    assert found.at["sendrecv", "gpu"] == "gh200-96gb"
    assert set(found["licence"]) == {"MIT"} and set(found["timing_kind"]) == {"event"}


def test_files_that_repeat_others_count_once(tmp_path: Path) -> None:
    row = "1000.0,1.0,4.0,500.0"
    write(tmp_path, "Perlmutter", f"{A100}_allreduce_fp16.csv", row)
    write(tmp_path, "Perlmutter", f"{A100}_allreduce_fp16_1_4.csv", row)
    write(tmp_path, "Perlmutter", f"{A100}.csv", "x", header="GPU\n")
    assert len(read(tmp_path)) == 1


def test_the_machine_is_that_of_the_site(tmp_path: Path) -> None:
    write(tmp_path, "Perlmutter", f"{A100}_allreduce_fp16_2_4.csv", "50000000.0,2.0,4.0,9000.0")
    write(tmp_path, "Vista", f"{GH200}_allreduce_fp16_4_1.csv", "50000000,4,1,4000.0")
    found = read_collectives(read(tmp_path))
    assert found.table.ranks_per_domain.tolist() == [4, 1]
    at = found.networks.inter_bytes_per_s[found.table.network]
    assert at.tolist() == [25e9, 50e9]


def test_unknown_sites_and_columns_are_refused_together(tmp_path: Path) -> None:
    write(tmp_path, "Elsewhere", f"{A100}_allreduce_fp16_1_4.csv", "1,1,4,5")
    write(tmp_path, "Vista", f"{GH200}_allreduce_fp16_2_1.csv", "1,2,1,5", header="shape,a,b,c\n")
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    assert "Elsewhere" in str(caught.value) and "dur(us)" in str(caught.value)


def test_a_folder_without_them_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no collectives"):
        read(tmp_path)


@pytest.mark.reference
def test_physics_finds_the_broken_series(reference: Path) -> None:
    frame = validate(read(reference / "kernels" / "estimate-train-time"))
    frame["id"] = frame.index.astype(str)
    found = read_collectives(frame)
    assert set(found.refusals()) == {TOO_FAST, LOST_SERIES}
    kept = frame[frame["id"].isin(found.ids)]
    gathers = kept[(kept["collective"] == "all_gather") & (kept["system"] == "TACC Vista")]
    assert set(gathers["world_size"]) == {2}
    # Perlmutter's runs between nodes went through sockets at about 1 GB/s.
    learned = frame[frame["id"].isin(learnable(found).ids)]
    perlmutter = learned[learned["system"] == "NERSC Perlmutter"]
    assert set(perlmutter["nodes"]) == {1} and len(learned) > 15_000
    assert learnable(found).refusals()[TOO_SLOW] > 10_000
