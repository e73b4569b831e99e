"""Reading aiconfigurator's collectives."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from predictor.datasets.collective_schema import validate
from predictor.datasets.collectives import read_collectives
from predictor.datasets.sources.aiconfigurator_nccl import read
from predictor.spec.errors import InputError

ROW = {"nccl_dtype": "half", "num_gpus": 8, "message_size": 1024, "kernel_source": "NCCL",
       "op_name": "all_gather", "latency": 0.02}


def write(root: Path, *rows: dict[str, object], system: str = "h100_sxm") -> Path:
    folder = root / "systems" / "data" / system / "comm" / "nccl" / "2.23"
    folder.mkdir(parents=True)
    pd.DataFrame(rows).to_parquet(folder / "nccl_perf.parquet")
    return root


def test_message_sizes_count_elements_of_their_type(tmp_path: Path) -> None:
    found = validate(read(write(tmp_path, ROW, ROW | {"nccl_dtype": "int8"})))
    assert found["bytes"].tolist() == [2048, 1024]
    one = found.iloc[0]
    assert (one["time_us"], one["world_size"], one["nodes"]) == (pytest.approx(20.0), 8, 1)
    assert (one["gpu"], one["intra_link"], one["library_version"]) == (
        "h100-sxm", "NVLink4/NVSwitch", "2.23")
    assert one["busbw_GBps"] == pytest.approx(2048 / 20e-6 * 7 / 8 / 1e9)
    assert (one["licence"], one["timing_kind"]) == ("Apache-2.0", "event")


def test_the_file_decides_which_nccl_ran(tmp_path: Path) -> None:
    found = read(write(tmp_path, ROW | {"version": "2.29.2"}))
    assert found.at[0, "library_version"] == "2.29.2"


def test_rows_become_groups_inside_one_domain(tmp_path: Path) -> None:
    found = read_collectives(read(write(tmp_path, ROW | {"num_gpus": 4}, system="gb200")))
    assert (found.table.group_size[0], found.table.domains[0]) == (4, 1)
    assert found.networks.domain[0] == 72


def test_untimed_rows_and_systems_without_known_links_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, ROW, ROW | {"latency": 0.0})
    write(tmp_path, ROW, system="b60")
    assert read(tmp_path)["system"].tolist() == ["h100_sxm"]


def test_unknown_types_and_columns_are_refused_together(tmp_path: Path) -> None:
    write(tmp_path, ROW | {"nccl_dtype": "fp6"})
    write(tmp_path, ROW | {"surprise": 1}, system="gb200")
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    assert "fp6" in str(caught.value) and "surprise" in str(caught.value)


def test_a_folder_without_them_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no collectives"):
        read(tmp_path)


def test_the_installed_package_if_there() -> None:
    pytest.importorskip("aiconfigurator_core", reason="aiconfigurator_core: not installed")
    from predictor.datasets.sources.aiconfigurator import package_folder

    frame = validate(read(package_folder()))
    found = read_collectives(frame)
    assert len(found) > 0.99 * len(frame) > 9_000
    assert {"h100_sxm", "gb300", "l40s"} <= set(found.system)
