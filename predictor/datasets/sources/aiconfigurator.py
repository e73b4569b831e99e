"""Reads the forward kernel timings of NVIDIA's aiconfigurator (package ``aiconfigurator_core``).

Layout: ``systems/data/<system>/<group>/<backend>/<version>/<operation>_perf.parquet``, Apache-2.0.
Every call was replayed as a CUDA graph with warm caches; ``latency`` is in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.catalog import load_gpu
from predictor.datasets.kernel_schema import normalise, stack
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "aiconfigurator"
LICENCE = "Apache-2.0"
SYSTEMS = {"a100_sxm": "a100-sxm-80gb", "a100_pcie": "a100-pcie-80gb", "h100_sxm": "h100-sxm",
           "h100_pcie": "h100-pcie", "h200_sxm": "h200-sxm", "b200_sxm": "b200-sxm",
           "b300_sxm": "b300-sxm", "gb200": "gb200", "gb300": "gb300", "l4": "l4", "l40s": "l40s",
           "rtx_pro_6000_server": "rtx-pro-6000"}
"""Folder names and what the catalogue calls the GPU. Systems beyond it (a30, b60) are left out."""
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "fp8": "fp8", "fp8_block": "fp8",
           "nvfp4": "nvfp4"}
"""Types whose operands are both of that width; integers and mixed types are left out."""
_MLA_DIMS = (192.0, 128.0)
"""DeepSeek's latent attention expanded for prefill: 128 + 64 rotary query and key, 128 value
dimensions (arXiv 2412.19437, section 4.2)."""
OPERATIONS = ("gemm", "context_attention", "encoder_attention", "context_mla", "moe")
_WANTED = ("gemm", "context_attention")


def read(folder: Path, operations: Iterable[str] = _WANTED, systems: Iterable[str] | None = None,
         most_rows: int | None = None, seed: int = 0) -> pd.DataFrame:
    """Return the tidy table of some operations on some systems.

    Parameters
    ----------
    folder
        ``systems/data`` of the package, or a folder above it.
    operations
        Names of :data:`OPERATIONS`.
    systems
        Names of :data:`SYSTEMS`; None reads all of them.
    most_rows
        Most rows of one file, drawn at random with ``seed``; None reads all.

    Raises
    ------
    InputError
        When an operation or system is unknown, or there are no such files.
    """
    names = _known("operation", operations, OPERATIONS)
    chosen = _known("system", SYSTEMS if systems is None else systems, tuple(SYSTEMS))
    root = _root(Path(folder))
    frames = [
        _file(path, root, name, most_rows, seed)
        for system in chosen for name in names
        for path in sorted(root.glob(f"{system}/*/*/*/{name}_perf.parquet"))]
    if not frames:
        raise InputError.of(
            "aiconfigurator-layout", f"no {', '.join(names)} timings of {', '.join(chosen)} in "
            f"{root}", "give the systems/data folder of the aiconfigurator_core package")
    return stack(frames)


def package_folder() -> Path:
    """Return the data folder of the installed package.

    Raises
    ------
    InputError
        When the package is not installed.
    """
    from importlib.util import find_spec

    found = find_spec("aiconfigurator_core")
    if found is None or not found.submodule_search_locations:
        raise InputError.of("aiconfigurator-installed", "aiconfigurator_core is not installed",
                            "install the extra: pip install 'predict-time[data]'")
    return Path(next(iter(found.submodule_search_locations))) / "systems" / "data"


def _known(what: str, given: Iterable[str], known: tuple[str, ...]) -> list[str]:
    names = list(given)
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise InputError.of(f"known-{what}", f"there is no {what} {', '.join(unknown)}",
                            f"choose from {', '.join(known)}", where=f"{what}s")
    return names


def _root(folder: Path) -> Path:
    for below in ("systems/data", "aiconfigurator_core/systems/data"):
        if (folder / below).is_dir():
            return folder / below
    return folder


def _file(path: Path, root: Path, name: str, most_rows: int | None, seed: int) -> pd.DataFrame:
    import pandas as pd

    system, _, backend, version = path.relative_to(root).parts[:4]
    table = pd.read_parquet(path)
    typed = table[_TYPES[name]].map(_DTYPES)
    timed = np.isfinite(table["latency"]) & (table["latency"] > 0)
    kept = table[typed.notna() & timed]
    if most_rows is not None and len(kept) > most_rows:
        kept = kept.sample(most_rows, random_state=seed).sort_index()
    shapes = _READERS[name](kept)
    cells = {
        "source": SOURCE, "licence": LICENCE, "file": path.relative_to(root).as_posix(),
        "timing_kind": "graph", "gpu": load_gpu(SYSTEMS[system]).name, "software": backend,
        "version": version, "impl": _implementation(kept, _TYPES[name]), "pass": "fwd",
        "dtype": typed[kept.index], "latency_s": kept["latency"] * 1e-3}
    return normalise(pd.DataFrame(cells | shapes, index=kept.index))


def _implementation(table: pd.DataFrame, dtype: str) -> pd.Series[Any]:
    """Return kernel and, where it is more than the type's name, the way it is quantized."""
    blocked = table[dtype].astype(str).str.endswith("_block")
    block = np.where(blocked & ~table["kernel_source"].str.endswith("_block"), " fp8_block", "")
    return table["kernel_source"].astype(str) + block


def _gemm(table: pd.DataFrame) -> dict[str, Any]:
    m, n, k = (table[name].astype(float) for name in ("m", "n", "k"))
    return {"op": "gemm", "batch": 1.0, "m": m, "n": n, "k": k, "flops": 2 * m * n * k}


def _context_attention(table: pd.DataFrame) -> dict[str, Any]:
    """Causal prefill: ``isl`` new tokens after ``step`` that are cached already."""
    window = np.asarray(table.get("window_size", 0.0), dtype=float)
    cache = table["kv_cache_dtype"].astype(str)
    return {
        "op": "attention", "batch": table["batch_size"], "seq": table["isl"],
        "seq_kv": table["isl"] + table["step"], "heads": table["num_heads"],
        "kv_heads": _groups(table), "head_dim": table["head_dim"],
        "head_dim_v": table["head_dim"], "causal": "1",
        "window": np.where(window > 0, window, np.nan),
        "impl": _cached(table, "attn_dtype", cache)}


def _cached(table: pd.DataFrame, dtype: str, cache: pd.Series[Any]) -> pd.Series[Any]:
    """Say in the implementation that keys and values are stored in another type."""
    other = np.where(cache != table[dtype].astype(str), " " + cache + " cache", "")
    return table["kernel_source"].astype(str) + other


def _groups(table: pd.DataFrame) -> pd.Series[Any]:
    groups = table["num_key_value_heads"]
    return groups.where(groups > 0, table["num_heads"])


def _encoder_attention(table: pd.DataFrame) -> dict[str, Any]:
    return {"op": "attention", "batch": table["batch_size"], "seq": table["isl"],
            "seq_kv": table["isl"], "heads": table["num_heads"], "kv_heads": table["num_heads"],
            "head_dim": table["head_dim"], "head_dim_v": table["head_dim"], "causal": "0"}


def _context_mla(table: pd.DataFrame) -> dict[str, Any]:
    query, value = _MLA_DIMS
    return {"op": "attention", "batch": table["batch_size"], "seq": table["isl"],
            "seq_kv": table["isl"] + table["step"], "heads": table["num_heads"],
            "kv_heads": table["num_heads"], "head_dim": query, "head_dim_v": value, "causal": "1",
            "tp": table["tp_size"],
            "impl": "mla " + _cached(table, "mla_dtype", table["kv_cache_dtype"].astype(str))}


def _moe(table: pd.DataFrame) -> dict[str, Any]:
    """All GEMMs of one rank's experts in one row, as one grouped GEMM of their mean size.

    Gated experts have three weights of hidden x inter elements, others two: the output width
    stands for all of them so that FLOPs add up. Experts without a token do not count; how many
    there are assumes even routing. Routing, activation and the skew of the distribution are inside
    the time.
    """
    held = np.maximum(table["num_experts"] / table["moe_ep_size"], 1.0)
    width = table["inter_size"] / table["moe_tp_size"]
    weights = np.where(table["kernel_source"].str.contains("nongated"), 2.0, 3.0)
    assigned = table["num_tokens"] * table["topk"] * held / table["num_experts"]
    idle = (1.0 - 1.0 / table["num_experts"]) ** (table["num_tokens"] * table["topk"])
    groups = np.clip(held * (1.0 - idle), 1.0, held)
    return {"op": "grouped_gemm", "batch": groups, "m": assigned / groups, "n": weights * width,
            "k": table["hidden_size"], "experts": table["num_experts"], "topk": table["topk"],
            "tp": table["moe_tp_size"],
            "flops": 2 * assigned * weights * width * table["hidden_size"],
            "impl": _implementation(table, "moe_dtype") + " " + table["distribution"].astype(str)}


_READERS: dict[str, Callable[[pd.DataFrame], dict[str, Any]]] = {
    "gemm": _gemm, "context_attention": _context_attention,
    "encoder_attention": _encoder_attention, "context_mla": _context_mla, "moe": _moe}
_TYPES = {"gemm": "gemm_dtype", "context_attention": "attn_dtype",
          "encoder_attention": "attn_dtype", "context_mla": "mla_dtype", "moe": "moe_dtype"}
