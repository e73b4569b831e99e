"""Reading what nccl-tests and rccl-tests print."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from predictor.datasets.collective_schema import validate
from predictor.datasets.collectives import read_collectives
from predictor.datasets.sources.nccl_tests import Machine, parse, read
from predictor.spec.errors import InputError

RANKS = """# Using devices
#  Rank  0 Group  0 Pid  101 on   node1 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  102 on   node1 device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid  201 on   node2 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid  202 on   node2 device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#
"""
HEADER = """#                                     out-of-place                       in-place
#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong
#   (B) (elements)             (us) (GB/s) (GB/s)     (us) (GB/s) (GB/s)
"""
START = """# nccl-tests version 2.17.8 nccl-headers=22902 nccl-library=22703
# Collective test starting: all_gather_perf
# nThread 1 nGpus 1 minBytes 1024 maxBytes 2048 step: 2(factor)
#
"""
ROWS = """ 1024   64   float   none   -1   20.5   0.05   0.04      0    21.0   0.05   0.04   0
 2048  128   float   none   -1   22.5   0.09   0.07      0    23.0   0.09   0.07   N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.05
"""
LOG = START + RANKS + HEADER + ROWS
MACHINE = Machine("ours", "NVLink4/NVSwitch", "InfiniBand NDR 400G/GPU", 400.0)


def test_both_sides_of_every_line_are_rows() -> None:
    found = validate(parse(LOG, MACHINE, licence="MIT"))
    assert found["time_us"].tolist() == [20.5, 21.0, 22.5, 23.0]
    assert found["in_place"].tolist() == [0, 1, 0, 1]
    assert found["bytes"].tolist() == [1024, 1024, 2048, 2048]
    assert found["busbw_GBps"].tolist() == [0.04, 0.04, 0.07, 0.07]
    one = found.iloc[0]
    assert (one["collective"], one["dtype"], one["library"], one["library_version"]) == (
        "all_gather", "float", "NCCL", "2.27.3")
    assert (one["nodes"], one["world_size"], one["gpus_per_node"]) == (2, 4, 2)
    assert (one["licence"], one["timing_kind"], one["flag"]) == ("MIT", "event", "")


def test_the_rows_can_be_scored_on_the_machine_that_is_stated() -> None:
    found = read_collectives(parse(LOG, MACHINE, licence="MIT"))
    assert len(found) == 4 and set(found.licence) == {"MIT"}
    assert found.networks.inter_bytes_per_s[0] == 50e9
    assert found.table.domains.tolist() == [2] * 4
    assert np.allclose(found.measured_s, [20.5e-6, 21e-6, 22.5e-6, 23e-6])


def test_without_links_no_row_is_scored() -> None:
    found = read_collectives(parse(LOG))
    assert len(found) == 0 and found.refusals() == {"unknown links inside the node": 4}


def test_a_log_holds_several_tests() -> None:
    second = LOG.replace("all_gather_perf", "alltoall_perf")
    found = parse(LOG + second)
    assert found["collective"].tolist() == ["all_gather"] * 4 + ["alltoall"] * 4
    assert found["world_size"].tolist() == [4] * 8


def test_rccl_and_the_name_in_a_command_line() -> None:
    command = "+ mpirun -np 4 ./build/all_reduce_perf -b 1K -e 2K\n"
    ranks = RANKS.replace("NVIDIA H100 80GB HBM3", "AMD Instinct MI300X").replace("Group  0 ", "")
    log = command + "rccl-tests: Version develop:5272cd1\n" + ranks + HEADER + ROWS
    found = parse(log)
    assert set(found["library"]) == {"RCCL"} and set(found["gpu"]) == {"AMD Instinct MI300X"}
    assert set(found["collective"]) == {"all_reduce"}


def test_older_versions_leave_redop_and_root_out() -> None:
    header = "#  size count type redop time algbw busbw error time algbw busbw error\n"
    rows = " 1024 64 float 20.5 0.05 0.04 0e+00 21.0 0.05 0.04 1e-07\n"
    found = parse(START + RANKS + header + rows)
    assert found["time_us"].tolist() == [20.5, 21.0]
    assert found["flag"].tolist() == ["", ""]


def test_labels_of_mpirun_and_srun_are_taken_off() -> None:
    tagged = "".join(f"[1,0]<stdout>: {line}\n" for line in LOG.splitlines())
    labelled = "".join(f"0: {line}\n" for line in LOG.splitlines())
    assert parse(tagged).equals(parse(LOG)) and parse(labelled).equals(parse(LOG))


def test_wrong_results_are_flagged_and_not_scored() -> None:
    broken = LOG.replace("0.04      0    21.0", "0.04      7    21.0")
    found = parse(broken, MACHINE)
    assert found["flag"].tolist() == ["wrong_results", "", "", ""]
    assert len(read_collectives(found)) == 3


def test_a_last_line_that_was_cut_is_left_out() -> None:
    whole = START + RANKS + HEADER + ROWS.splitlines()[0] + "\n"
    found = parse(whole + " 2048 128 float no")
    assert len(found) == 2


def test_one_process_for_each_rank_is_refused() -> None:
    with pytest.raises(InputError, match="not numbered from 0") as caught:
        parse(START + RANKS.replace("Rank  1", "Rank  0") + HEADER + ROWS)
    assert [problem.rule for problem in caught.value.problems] == ["nccl-tests-run"]


def test_all_problems_are_reported_at_once() -> None:
    mixed = RANKS.replace("node2 device  1 [0000:43:00] NVIDIA H100 80GB HBM3",
                          "node2 device  1 [0000:43:00] NVIDIA H200")
    log = mixed + HEADER + ROWS + " 4096 128 float none -1 22.5 0.09\n"
    with pytest.raises(InputError) as caught:
        parse(log)
    text = str(caught.value)
    assert "7 values under 13 columns" in text and "2 kinds of GPU" in text
    assert "does not name the test" in text and len(caught.value.problems) == 3


def test_a_time_that_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match="no number"):
        parse(LOG.replace("20.5", "2O.5"))


def test_sizes_before_a_header_and_logs_without_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="before any header"):
        parse(START + RANKS + ROWS)
    with pytest.raises(InputError, match="no measured size"):
        parse(START)
    with pytest.raises(InputError, match="no log"):
        read(tmp_path)


def test_a_folder_is_read_log_by_log(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(LOG)
    (tmp_path / "b.txt").write_text(LOG)
    found = read(tmp_path, MACHINE)
    assert found["source_ref"].tolist() == ["a.log"] * 4 + ["b.txt"] * 4
    (tmp_path / "c.log").write_text("nothing\n")
    with pytest.raises(InputError, match=r"c\.log"):
        read(tmp_path)


@pytest.mark.reference
def test_the_published_logs(reference: Path) -> None:
    found = validate(read(reference / "formats" / "nccl-tests", MACHINE))
    rows = found.groupby(["source_ref", "collective"]).size()
    assert rows.loc["N1_G8_cnode3-002.log"].to_dict() == dict.fromkeys(
        ["all_gather", "all_reduce", "alltoall", "reduce_scatter", "sendrecv"], 20)
    assert rows.loc["b200_8gpu_allreduce.txt"].to_dict() == {"all_reduce": 2}
    factor = found["collective"].map({"all_reduce": 2.0}).fillna(1.0)
    rings = found[found["collective"] != "sendrecv"]
    bus = factor * (1 - 1 / found["world_size"]) * found["bytes"] / found["time_us"] * 1e-3
    assert np.allclose(rings["busbw_GBps"], bus[rings.index], rtol=2e-3)
