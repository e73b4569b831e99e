"""Reads the collectives of NVIDIA's aiconfigurator (package ``aiconfigurator_core``), Apache-2.0.

Layout: ``systems/data/<system>/comm/nccl/<version>/nccl_perf.parquet``, made with nccl-tests out of
place inside one domain. ``message_size`` counts elements of ``nccl_dtype``, ``latency`` is in
milliseconds. Folders may hold runs of another NCCL than they are named after: the file decides.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from predictor.catalog import load_gpu
from predictor.datasets.collective_schema import normalise, stack, with_bandwidths
from predictor.datasets.sources.aiconfigurator import LICENCE, SYSTEMS
from predictor.datasets.sources.frames import open_table
from predictor.spec.errors import InputError, Problem

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "aiconfigurator_nccl"
FILES = "comm/nccl/*/nccl_perf.parquet"
_NEEDED = ("nccl_dtype", "num_gpus", "message_size", "op_name", "latency")
_KNOWN = (*_NEEDED, "framework", "version", "device", "kernel_source")
_WIDTHS = {"half": 2.0, "int8": 1.0}
_LINKS = {
    "a100_sxm": "NVLink3/NVSwitch", "h100_sxm": "NVLink4/NVSwitch", "h200_sxm": "NVLink4/NVSwitch",
    "b200_sxm": "NVLink5/NVSwitch", "b300_sxm": "NVLink5/NVSwitch",
    "gb200": "NVLink5/NVSwitch (NVL72)", "gb300": "NVLink5/NVSwitch (NVL72)", "l40s": "PCIe 4.0",
    "rtx_pro_6000_server": "PCIe 5.0"}
"""Links inside the node by system, from NVIDIA's data sheets; others are left out."""


def read(folder: Path) -> pd.DataFrame:
    """Return the tidy table of every system whose GPU and links are known.

    ``folder`` is ``systems/data`` of the package or one above it.

    Raises
    ------
    InputError
        When there are no such files, or for each that cannot be read or holds unknown types.
    """
    root = Path(folder)
    paths = [path for path in sorted(root.rglob(FILES)) if _system(path) in _LINKS]
    if not paths:
        raise InputError.of("aiconfigurator-layout", f"no collectives of NCCL in {root}",
                            "give the systems/data folder of the aiconfigurator_core package")
    problems: list[Problem] = []
    frames = []
    for path in paths:
        try:
            frames.append(_file(path))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return stack(frames)


def _system(path: Path) -> str:
    return path.parts[-5]


def _file(path: Path) -> pd.DataFrame:
    import pandas as pd

    table = open_table(path, _NEEDED, "aiconfigurator's collectives", _KNOWN)
    system, version = _system(path), path.parts[-2]
    width = table["nccl_dtype"].map(_WIDTHS)
    if width.isna().any():
        unknown = sorted(set(table["nccl_dtype"][width.isna()].astype(str)))
        raise InputError.of("known-type", f"unknown types {', '.join(unknown)} in {system}",
                            f"give only {', '.join(_WIDTHS)}", where="nccl_dtype")
    where = "/".join(path.parts[-5:])
    cells = {
        "source": SOURCE, "source_ref": where, "licence": LICENCE, "system": system,
        "timing_kind": "event", "gpu": load_gpu(SYSTEMS[system]).name,
        "gpus_per_node": table["num_gpus"], "nodes": 1, "world_size": table["num_gpus"],
        "intra_link": _LINKS[system], "inter_link": "none", "library": "NCCL",
        "library_version": table.get("version", version), "collective": table["op_name"],
        "dtype": table["nccl_dtype"], "bytes": table["message_size"] * width,
        "time_us": table["latency"] * 1e3, "in_place": 0, "n_samples": 1}
    timed = np.isfinite(table["latency"]) & (table["latency"] > 0)
    frame = pd.DataFrame(cells, index=table.index)[timed]
    return with_bandwidths(normalise(frame))
