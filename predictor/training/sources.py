"""Finds the measured tables that the learned predictor is trained on.

Layout of the data folder: the folder that ``predict-time profile`` wrote, or ``campaigns/`` with
several of them; ``kernels/`` and ``collectives/`` as the public sources publish their
files, or the tables that bring several of them together; the installed package
``aiconfigurator_core`` is read in place, but not beside a single campaign. Only tables with a
permissive licence are learned from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from predictor.datasets.collectives import PUBLIC_TABLE, tidy_collectives
from predictor.datasets.sources import estimate_train_time_nccl
from predictor.datasets.sources.campaign import (
    COLLECTIVES, KERNELS, RECORD, SOURCE, campaign_folders, read_collectives, read_kernels,
)
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

PERMISSIVE = frozenset({"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause"})
"""Licences (SPDX) under which what was learned may be shipped."""
AICONFIGURATOR_ROWS = 20_000
"""Rows of one file of aiconfigurator that are learned from: its files differ a hundredfold."""
_DIGEST_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Table:
    """One source, read into the tidy layout."""

    name: str
    frame: pd.DataFrame
    sha256: str
    """Over the names and contents of its files."""


KERNEL_SOURCES = ("estimate-train-time", "cudnn-frontend", "kernels-long", "liger", "simumax",
                  "aiconfigurator", SOURCE)
"""Sources of measured kernels, by the name that they are asked for."""


def kernel_tables(
    data: Path, *, wanted: Collection[str] = KERNEL_SOURCES, seed: int = 0
) -> list[Table]:
    """Return the wanted tables of kernels that are in ``data`` or the installed packages.

    Raises
    ------
    InputError
        When there is none, one of them cannot be read, or a name is unknown.
    """
    unknown = sorted(set(wanted) - set(KERNEL_SOURCES))
    if unknown:
        raise InputError.of("known-source", f"there is no source {', '.join(unknown)}",
                            f"choose from {', '.join(KERNEL_SOURCES)}", "source")
    found = [Table(name, _learnable(frame), sha256)
             for name, frame, sha256 in _kernels(data, wanted, seed)]
    found = [table for table in found if len(table.frame)]
    if not found:
        raise InputError.of("training-data", f"there are no measured kernels in {data}",
                            "give a folder that holds kernels/ (docs/training.md)", "data")
    return found


def _learnable(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that may and can be learned from.

    No public source says how many parameters its optimizer steps updated, and the host times them.
    """
    sized = (frame["op"] != "optimizer") | (frame["source"] == SOURCE)
    return frame[frame["licence"].isin(sorted(PERMISSIVE)) & sized]


def _kernels(
    data: Path, wanted: Collection[str], seed: int
) -> Iterator[tuple[str, pd.DataFrame, str]]:
    from predictor.datasets.sources import (
        aiconfigurator, cudnn_frontend, estimate_train_time, kernels_long, liger, simumax,
    )

    folder = data / "kernels"
    readers: tuple[tuple[str, Path, Callable[[Path], pd.DataFrame]], ...] = (
        ("estimate-train-time", folder / "estimate-train-time", estimate_train_time.read),
        ("cudnn-frontend", folder / "cudnn-frontend", cudnn_frontend.read),
        ("kernels-long", folder / kernels_long.TABLE, kernels_long.read),
        ("liger", folder / "liger_speed.parquet", liger.read),
        ("simumax", folder / "simumax_efficiency.csv", simumax.read))
    have = {name for name, path, _ in readers if path.exists() and name in wanted}
    for name, path, read in readers:
        if name in have:
            frame = read(path)
            if name == "kernels-long":  # the original files say more than their excerpt
                frame = frame[~frame["source"].isin(have - {"kernels-long"})]
            yield name, frame, digest(path)
    for own in campaign_folders(data) if SOURCE in wanted else ():
        yield f"campaign {own.name}", read_kernels(own), digest(own / RECORD, *own.glob(KERNELS))
    own_alone = (data / RECORD).is_file()  # a campaign speaks for its own machine
    package = _package() if "aiconfigurator" in wanted and not own_alone else None
    if package is not None:
        operations = ("gemm", "context_attention", "encoder_attention", "context_mla")
        frame = aiconfigurator.read(package, operations, most_rows=AICONFIGURATOR_ROWS, seed=seed)
        files = [path for name in operations
                 for path in sorted(package.glob(f"*/*/*/*/{name}_perf.parquet"))]
        yield "aiconfigurator", frame, digest(*files)


def _package() -> Path | None:
    from predictor.datasets.sources import aiconfigurator

    try:
        return aiconfigurator.package_folder()
    except InputError:
        return None


def collective_tables(data: Path) -> list[Table]:
    """Return the measured collectives in ``data`` that may be learned from.

    Raises
    ------
    InputError
        When there are none, or a table cannot be read.
    """
    path = data / "collectives" / PUBLIC_TABLE
    found = [Table("collectives", tidy_collectives(path), digest(path))] if path.exists() else []
    folder = data / "kernels" / "estimate-train-time"
    if folder.is_dir():
        found.append(Table("estimate-train-time", estimate_train_time_nccl.read(folder),
                           digest(folder)))
    found += [Table(f"campaign {own.name}", read_collectives(own),
                    digest(own / RECORD, *own.glob(COLLECTIVES)))
              for own in campaign_folders(data)]
    kept = [replace(one, frame=one.frame[one.frame["licence"].isin(sorted(PERMISSIVE))])
            for one in found]
    if not any(len(one.frame) for one in kept):
        raise InputError.of("training-data", f"no collectives in {data} may be learned from",
                            "see docs/training.md for the layout and the sources", "data")
    return kept


def digest(*paths: Path) -> str:
    """Return the SHA-256 over names and contents of files, and of all files in folders."""
    total = hashlib.sha256()
    for root in paths:
        files = sorted(path for path in root.rglob("*") if path.is_file()) if root.is_dir() \
            else [root]
        for path in files:
            total.update(path.name.encode() + b"\0")
            with path.open("rb") as file:
                while block := file.read(_DIGEST_BLOCK):
                    total.update(block)
    return total.hexdigest()
