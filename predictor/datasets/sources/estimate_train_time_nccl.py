"""Reads the sampled collectives of estimate-train-time (arXiv 2509.22832), fp16, MIT.

Layout: ``<site>/nccl/<GPU>_<function>_<dtype>_<nodes>_<GPUs per node>.csv`` with the columns shape,
nodes, GPUsPerNode and dur(us); files without the last two parts repeat their rows. ``shape`` counts
elements of what a rank puts in: of an all-gather its own share, which the times show (n - 1 shares
enter each rank). Whether a row can be true is for :mod:`predictor.datasets.collectives` to say.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from predictor.catalog import load_gpu
from predictor.datasets.collective_schema import normalise, stack, with_bandwidths
from predictor.datasets.sources.estimate_train_time import LICENCE
from predictor.datasets.sources.frames import open_table
from predictor.spec.errors import InputError, Problem

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "estimate-train-time"
_NAME = re.compile(r"(?P<gpu>.+?)_(?P<function>allgather|allreduce|reducescatter|p2p)(?:_large)?_"
                   r"(?P<dtype>fp16|bf16|fp32)(?:_\d+_\d+)?\.csv")
_COLLECTIVES = {"allgather": "all_gather", "allreduce": "all_reduce",
                "reducescatter": "reduce_scatter", "p2p": "sendrecv"}
_WIDTHS = {"fp16": 2.0, "bf16": 2.0, "fp32": 4.0}
_SITES = {
    "Perlmutter": ("NVLink3 all-to-all (4 GPU)", "Slingshot-11 4x200G/node", 200.0),
    "Vista": ("none", "InfiniBand NDR 400G/GPU", 400.0)}
"""Links inside a node, adapters, and Gbit/s for each GPU (documentation of NERSC and TACC)."""
_COLUMNS = ("shape", "nodes", "GPUsPerNode", "dur(us)")
_DISTINCT = ["system", "gpu", "collective", "dtype", "nodes", "world_size", "bytes", "time_us"]


def read(folder: Path) -> pd.DataFrame:
    """Return the tidy table of every collective below ``folder``.

    Raises
    ------
    InputError
        When there are no such files, or for each one of an unknown site or with other columns.
    """
    root = Path(folder)
    paths = [(path, found) for path in sorted(root.glob("**/nccl/*.csv"))
             if (found := _NAME.fullmatch(path.name))]
    if not paths:
        raise InputError.of(
            "estimate-train-time-layout", f"no collectives in {root}",
            "give the folder that holds <site>/nccl/<GPU>_<function>_fp16_<nodes>_<GPUs>.csv")
    problems: list[Problem] = []
    frames = []
    for path, found in paths:
        try:
            frames.append(_file(path, root, found))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return stack(frames).drop_duplicates(_DISTINCT, ignore_index=True)


def _file(path: Path, root: Path, found: re.Match[str]) -> pd.DataFrame:
    import pandas as pd

    site = path.parent.parent.name
    if site not in _SITES:
        raise InputError.of("known-site", f"the links of {site} are not known",
                            f"give folders named {', '.join(_SITES)}", where=str(path.name))
    table = open_table(path, _COLUMNS, "estimate-train-time's collectives", _COLUMNS)
    inner, outer, rate = _SITES[site]
    collective = _COLLECTIVES[found["function"]]
    ranks = table["nodes"] * table["GPUsPerNode"]
    gathers = ranks if collective == "all_gather" else 1.0
    cells = {
        "source": SOURCE, "source_ref": path.relative_to(root).as_posix(), "licence": LICENCE,
        "system": f"TACC {site}" if site == "Vista" else f"NERSC {site}", "timing_kind": "event",
        "gpu": load_gpu(found["gpu"]).name, "gpus_per_node": table["GPUsPerNode"],
        "nodes": table["nodes"], "world_size": ranks, "intra_link": inner, "inter_link": outer,
        "nic_gbps_per_gpu": rate, "library": "NCCL", "collective": collective,
        "dtype": found["dtype"], "bytes": table["shape"] * _WIDTHS[found["dtype"]] * gathers,
        "time_us": table["dur(us)"], "n_samples": 1}
    timed = np.isfinite(table["dur(us)"]) & (table["dur(us)"] > 0)
    frame = pd.DataFrame(cells, index=table.index)[timed]
    return with_bandwidths(normalise(frame))
