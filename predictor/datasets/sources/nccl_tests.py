"""Reads what nccl-tests and rccl-tests print, one or more tests in a log.

Layout: a line that names the test (``# Collective test starting: all_gather_perf``, or the command
line above it), one line for every rank with host and GPU, a header that names the columns, and a
line for every size with the times out of place and in place. Older versions call ``#wrong``
``error`` and leave ``redop`` and ``root`` out. The links of the machine are not in a log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predictor.datasets.collective_schema import COLLECTIVES, normalise, stack
from predictor.spec.errors import InputError, Problem

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "nccl-tests"
_TEST = re.compile(r"\b(?P<name>[a-z_]+?)_perf(?:_mpi)?\b")
_TAG = re.compile(r"^(?:\[\d+,\d+\]<std\w+>:\s?|\d+:\s)")
"""What mpirun and srun put before each line when asked to label output."""
_RANK = re.compile(r"#\s+Rank\s+(?P<rank>\d+)\s.*?\bPid\s+\d+\s+on\s+(?P<host>\S+)\s+device\s+\d+\s"
                   r"+\[[^\]]*\]\s+(?P<gpu>.+?)\s*$")
_LIBRARY = re.compile(r"nccl-library=(?P<code>\d+)|\bR?NCCL version\s*:?\s*(?P<text>\d+\.[\d.]+)")
_SIDE = ("time", "algbw", "busbw", "wrong")
"""What is printed out of place, and again in place."""
_FRONT = ("size", "count", "type", "redop", "root")


@dataclass(frozen=True, slots=True)
class Machine:
    """What a log does not say. Blanks are unknown, and rows without links are not learned from."""

    system: str = ""
    intra_link: str = ""
    """Links inside a node in words, such as ``NVLink4/NVSwitch`` (see
    :func:`predictor.datasets.collective_links.scale_up`)."""
    inter_link: str = ""
    """Adapters in words, such as ``InfiniBand NDR 400G/GPU``."""
    nic_gbps_per_gpu: float = float("nan")
    """Gbit/s of one GPU's share of the adapters."""


def read(path: Path, machine: Machine | None = None, *, licence: str = "unknown",
         source: str = SOURCE) -> pd.DataFrame:
    """Return the tidy table of a log, or of all ``*.log`` and ``*.txt`` files in a folder.

    Raises
    ------
    InputError
        When there is no log, or with everything that cannot be read: tests without a name, a rank
        or a header, unequal GPUs, and lines that do not fit their header.
    """
    root = Path(path)
    files = sorted([*root.rglob("*.log"), *root.rglob("*.txt")]) if root.is_dir() else [root]
    if not files or not files[0].is_file():
        raise InputError.of("nccl-tests-layout", f"there is no log at {root}",
                            "give the output of nccl-tests or a folder with such files")
    problems: list[Problem] = []
    frames = []
    for file in files:
        try:
            frames.append(parse(file.read_text(encoding="utf-8", errors="replace"), machine,
                                licence=licence, source=source, name=file.name))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return stack(frames)


def parse(text: str, machine: Machine | None = None, *, licence: str = "unknown",
          source: str = SOURCE, name: str = "log") -> pd.DataFrame:
    """Return the tidy table of what nccl-tests printed; ``name`` is where it came from.

    Raises
    ------
    InputError
        As :func:`read`.
    """
    import pandas as pd

    log = _Log(name)
    lines = [_TAG.sub("", line) for line in text.splitlines()]
    whole = text.endswith("\n")
    for number, line in enumerate(lines, 1):
        log.line(number, line, cut=number == len(lines) and not whole)
    problems = log.problems + [problem for test in log.tests for problem in test.problems(name)]
    if not any(test.rows for test in log.tests):
        problems.append(Problem("nccl-tests-rows", "there is no measured size",
                                "give the output of nccl-tests", where=name))
    if problems:
        raise InputError(problems)
    where = machine or Machine()
    shared = {"source": source, "source_ref": name, "licence": licence, "system": where.system,
              "timing_kind": "event", "intra_link": where.intra_link,
              "inter_link": where.inter_link, "nic_gbps_per_gpu": where.nic_gbps_per_gpu}
    rows = [shared | cells for test in log.tests for cells in test.cells()]
    return normalise(pd.DataFrame(rows))


@dataclass(slots=True)
class _Test:
    """One run of one collective."""

    collective: str
    library: str
    version: str
    hosts: list[str] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    gpus: set[str] = field(default_factory=set)
    header: list[str] = field(default_factory=list)
    rows: list[dict[str, str]] = field(default_factory=list)

    def problems(self, where: str) -> list[Problem]:
        """Return what keeps the measured sizes from being used."""
        if not self.rows:
            return []
        cases = (
            (self.collective not in COLLECTIVES,
             f"the log does not name the test of its sizes ({self.collective or 'blank'})",
             "keep the command line or the line 'Collective test starting'"),
            (len(self.gpus) != 1, f"the ranks run on {len(self.gpus)} kinds of GPU",
             "give runs on equal GPUs with the lines 'Rank ... device ...'"),
            (sorted(self.ranks) != list(range(len(self.ranks))),
             f"the ranks {sorted(set(self.ranks))} are not numbered from 0 once each",
             "build nccl-tests with MPI=1, so that processes join one group"))
        return [Problem("nccl-tests-run", message, remedy, where=where)
                for wrong, message, remedy in cases if wrong]

    def cells(self) -> list[dict[str, Any]]:
        """Return the tidy cells of each size, out of place and in place."""
        nodes = len(set(self.hosts))
        shared = {"gpu": "".join(self.gpus), "nodes": nodes, "world_size": len(self.ranks),
                  "gpus_per_node": len(self.ranks) / max(nodes, 1), "library": self.library,
                  "library_version": self.version, "collective": self.collective}
        return [shared | found for row in self.rows for in_place in (0, 1)
                if (found := _side(row, in_place)) is not None]


class _Log:
    """Reads lines in order and gathers the tests."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tests: list[_Test] = []
        self.problems: list[Problem] = []
        self.library, self.version, self.named = "NCCL", "", ""

    def line(self, number: int, line: str, *, cut: bool) -> None:
        """Take in one line; ``cut`` marks a last line that was not written to its end."""
        self._libraries(line)
        rank = _RANK.match(line)
        if rank:
            self._rank(rank)
        elif _is_header(line) and self.tests:
            self.tests[-1].header = line.lstrip("# ").replace("#", "").split()
        elif "test concluded" not in line and (test := _TEST.search(line)):
            self.named = test["name"].replace("all_to_all", "alltoall")
        elif not cut and re.match(r"\s*\d+\s+\d+\s+[a-z]\w*\s", line):
            self._row(number, line)

    def _libraries(self, line: str) -> None:
        if "rccl-tests" in line or "RCCL version" in line:
            self.library = "RCCL"
        found = _LIBRARY.search(line)
        if found:
            self.version = found["text"] or _version(int(found["code"]))

    def _rank(self, found: re.Match[str]) -> None:
        """Ranks after a header or sizes belong to the next test."""
        if not self.tests or self.tests[-1].header:
            self.tests.append(_Test(self.named, self.library, self.version))
            self.named = ""
        test = self.tests[-1]
        test.ranks.append(int(found["rank"]))
        test.hosts.append(found["host"])
        test.gpus.add(found["gpu"])

    def _row(self, number: int, line: str) -> None:
        where = f"{self.name}:{number}"
        header = self.tests[-1].header if self.tests else []
        if not header:
            self.problems.append(Problem("nccl-tests-line", "a size comes before any header",
                                         "keep the lines from 'Using devices' on", where=where))
            return
        values = line.split()
        names = _fitting(header, values)
        if len(names) != len(values):
            self.problems.append(Problem(
                "nccl-tests-line", f"{len(values)} values under {len(header)} columns",
                "give the line as it was printed", where=where))
            return
        try:
            self.tests[-1].rows.append(_numbered(names, values))
        except ValueError as error:
            self.problems.append(Problem("nccl-tests-line", f"a time is no number: {error}",
                                         "give the line as it was printed", where=where))


def _is_header(line: str) -> bool:
    words = line.lstrip("# ").split()
    return words[:2] == ["size", "count"] and "time" in words


def _version(code: int) -> str:
    """Return the version that NCCL_VERSION_CODE says: 22902 is 2.29.2 (nccl.h)."""
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def _fitting(header: list[str], values: list[str]) -> list[str]:
    """Old versions name redop and root for every test and leave the cells of some blank."""
    names = list(header)
    for absent in ("root", "redop"):
        if len(names) > len(values) and absent in names:
            names.remove(absent)
    return names


def _numbered(names: list[str], values: list[str]) -> dict[str, str]:
    """Return the cells by name, the second of a repeated name with a 1 behind it."""
    cells: dict[str, str] = {}
    for name, value in zip(names, values, strict=True):
        known = "wrong" if name == "error" else name
        if known not in _FRONT + _SIDE:
            continue
        cells[known + "1" if known in cells else known] = value
    for time in ("time", "time1"):
        float(cells.get(time, "nan"))
    return cells


def _side(row: dict[str, str], in_place: int) -> dict[str, Any] | None:
    """Return the tidy cells of one side of a line, None for an empty message or a side left out."""
    end = "1" if in_place else ""
    time, size = float(row.get("time" + end, "nan")), float(row["size"])
    if not time > 0 or not size > 0:
        return None
    wrong = row.get("wrong" + end, "0").rstrip("*")
    failed = wrong not in ("N/A", "") and float(wrong) > _ALLOWED_ERROR
    return {"dtype": row["type"], "bytes": size, "time_us": time,
            "algbw_GBps": row.get("algbw" + end), "busbw_GBps": row.get("busbw" + end),
            "in_place": in_place, "n_samples": 1, "flag": "wrong_results" if failed else ""}


_ALLOWED_ERROR = 1e-2
"""Old versions print the largest relative error of a sum, new ones how many values are wrong."""
