"""Reads our own profiling campaigns: the tidy table itself, with a record of the environment.

Layout: the folder that ``predict-time profile`` wrote; or ``<name>.parquet`` in the columns of
:mod:`predictor.datasets.kernel_schema` and, beside it, ``<name>.json`` with the versions that the
timings hold for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predictor.catalog import load_gpu
from predictor.datasets import collective_schema, kernel_schema
from predictor.datasets.kernel_schema import COLUMNS, stack, validate
from predictor.datasets.sources.frames import open_table
from predictor.spec.errors import InputError, Problem

if TYPE_CHECKING:
    import pandas as pd

ENVIRONMENT = ("gpu", "driver", "cuda", "torch")
"""Keys of the record: a name of the catalogue and three versions, all of them text."""
SOURCE = "campaign"
"""What the tables of a campaign name as their source."""
RECORD, KERNELS, COLLECTIVES = "environment.json", "kernels.parquet", "collectives.parquet"
LAYERS, OVERLAPS = "layers.parquet", "overlaps.parquet"
"""Files of a campaign's folder (:mod:`predictor.profiling.store`)."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a campaign ran on."""

    gpu: str
    """Name in the catalogue."""
    driver: str
    cuda: str
    torch: str


def read(path: Path) -> pd.DataFrame:
    """Return a campaign's rows, or those of all campaigns in a folder.

    Raises
    ------
    InputError
        When a table is absent or not tidy (columns missing, unknown or out of order, values out
        of range), or its environment record is absent, incomplete, of another GPU, or holds what
        the schema does not name.
    """
    path = Path(path)
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise InputError.of("campaign-files", f"there is no campaign (*.parquet) in {path}",
                            "give the folder or the file that a campaign wrote")
    return stack(map(_file, files))


def campaign_folders(data: Path) -> list[Path]:
    """Return ``data`` when a campaign wrote it, else the campaigns in its folder ``campaigns``."""
    places = [data] if (data / RECORD).is_file() else sorted(data.glob("campaigns/*"))
    return [one for one in places if (one / RECORD).is_file()]


def read_kernels(folder: Path) -> pd.DataFrame:
    """Return the kernels in a campaign's folder as a tidy table; empty when it measured none.

    Raises
    ------
    InputError
        When the table is not tidy or the catalogue does not know the GPU.
    """
    frame = _measured(folder, KERNELS)
    if frame is None:
        return kernel_schema.empty()
    return validate(kernel_schema.normalise(_named(frame, COLUMNS).assign(file=KERNELS)))


def read_collectives(folder: Path) -> pd.DataFrame:
    """Return the collectives of one group of neighbours in a campaign's folder as a tidy table.

    Several groups at once and ranks that are strides apart share links in ways that the table has
    no columns for; they stay in the folder.

    Raises
    ------
    InputError
        When the table is not tidy or the catalogue does not know the GPU.
    """
    frame = _measured(folder, COLLECTIVES)
    if frame is None:
        return collective_schema.stack([])
    plain = frame[(frame["stride"] == 1) & (frame["groups"] == 1)].reset_index(drop=True)
    tidy = collective_schema.normalise(_named(plain, collective_schema.COLUMNS))
    return collective_schema.validate(collective_schema.with_bandwidths(tidy))


def read_layers(folder: Path) -> pd.DataFrame | None:
    """Return the timed layers in a campaign's folder as rows of a steps table; None without any.

    Each is a model of one layer, with the columns ``pass``, ``parallel`` and ``latency_s`` on top.
    """
    frame = _measured(folder, LAYERS)
    if frame is None:
        return None
    ranks = frame["ranks"].where(frame["parallel"] != "none", 1)
    tensor = frame["parallel"] == "tensor"
    return frame.assign(
        num_gpus=ranks, gpus_per_node=frame["ranks_per_node"].where(ranks > 1, 1),
        interconnect_intra=frame["intra_link"], interconnect_inter=frame["inter_link"],
        framework="torchtitan", implementation="eager", model_name=frame["style"],
        arch=frame["style"], num_layers=1, hidden=frame["hidden_size"],
        ffn_hidden=frame["ffn_hidden_size"], num_heads=frame["num_attention_heads"],
        num_kv_heads=frame["num_query_groups"].where(frame["num_query_groups"] > 0,
                                                     frame["num_attention_heads"]),
        head_dim=frame["hidden_size"] // frame["num_attention_heads"], vocab=ranks,
        num_experts=frame["num_experts"].where(frame["num_experts"] > 0),
        topk=frame["moe_router_topk"].where(frame["moe_router_topk"] > 0),
        gated_mlp=(frame["style"] != "gpt").astype(int), tied_embeddings=0,
        micro_batch=frame["micro_batch_size"],
        global_batch=frame["micro_batch_size"] * ranks.where(~tensor, 1),
        tp=ranks.where(tensor, 1), sp=tensor.astype(int), pp=1,
        zero_stage=frame["parallel"].map({"fsdp2": "3"}).fillna("0"), precision=frame["dtype"],
        recompute="none", flash_attention="SDPA", workload="pretrain")


def read_overlaps(folder: Path) -> pd.DataFrame | None:
    """Return the timings of collectives beside products in a campaign's folder, if it has any."""
    return _measured(folder, OVERLAPS)


def _measured(folder: Path, name: str) -> pd.DataFrame | None:
    path = folder / name
    if not path.is_file():
        return None
    frame = open_table(path, ("gpu",), "a campaign")
    return frame.assign(gpu=[load_gpu(one).name for one in frame["gpu"]])


def _named(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Leave the statistics of the timings aside."""
    return frame[[name for name in frame.columns if name in columns]]


def read_environment(path: Path) -> Environment:
    """Return the environment record of the campaign at ``path`` (its ``.parquet`` file).

    Raises
    ------
    InputError
        Listing every absent, unknown or blank key.
    """
    record = Path(path).with_suffix(".json")
    given = _object(record)
    problems = [
        Problem("environment-keys", f"{record.name} lacks {name}", "add it as text", where=name)
        for name in ENVIRONMENT if not isinstance(given.get(name), str) or not given[name].strip()]
    problems += [
        Problem("environment-keys", f"{record.name} has an unknown key {name}",
                f"keep {', '.join(ENVIRONMENT)}", where=name)
        for name in sorted(set(given) - set(ENVIRONMENT))]
    if problems:
        raise InputError(problems)
    return Environment(**given | {"gpu": load_gpu(given["gpu"]).name})


def _object(record: Path) -> dict[str, Any]:
    try:
        given = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError.of("environment-record", f"cannot read {record.name}: {reason}",
                            "put the campaign's environment record beside its table") from None
    if not isinstance(given, dict):
        raise InputError.of("environment-record", f"{record.name} is no JSON object",
                            f"give an object with {', '.join(ENVIRONMENT)}")
    return given


def _file(path: Path) -> pd.DataFrame:
    environment = read_environment(path)
    frame = validate(open_table(path, COLUMNS, "a campaign", COLUMNS))
    others = sorted(set(frame["gpu"]) - {environment.gpu})
    if others:
        raise InputError.of(
            "campaign-gpu", f"{path.name} has rows of {', '.join(others)}, but was measured on "
            f"{environment.gpu}", "keep one campaign for each GPU", where="gpu")
    return frame
