"""A step's document as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from predictor.cli.options import JOB_FIELDS, STRATEGY_FIELDS
from predictor.cli.predictor_option import ANALYTIC, SHORT
from predictor.spec.job import TrainingJob
from predictor.spec.strategy import Strategy

BAR = 30
GIB = 2**30
NAMES = {
    "compute_s": "compute", "tp_s": "tensor parallel", "cp_s": "context parallel",
    "ep_s": "expert parallel", "pp_s": "pipeline sends", "dp_s": "data parallel",
    "bubble_s": "pipeline bubble", "optimizer_s": "optimizer", "overhead_s": "host and rest",
}
VERDICTS = {"fits": "fits", "tight": "fits only just, or not", "does-not-fit": "does NOT fit"}


def report(document: Mapping[str, Any]) -> str:
    """Return the whole report."""
    parts = [_head(document), _breakdown(document), _throughput(document["throughput"]),
             _memory(document["memory"]), _assumed(document["input"]["assumed"])]
    return "\n\n".join(part for part in parts if part)


def _head(document: Mapping[str, Any]) -> str:
    given = document["input"]
    strategy, cluster = given["strategy"], given["cluster"]
    groups = cluster["groups"]
    gpus = sum(group["gpus_per_node"] * group["nodes"] for group in groups)
    degrees = " ".join(f"{name} {strategy[name]}" for name in ("tp", "pp", "vpp", "cp", "ep", "dp")
                       if strategy[name] != 1)
    interval = ""
    if document["low_s"] is not None:
        interval = (f" ({seconds(document['low_s'])} to {seconds(document['high_s'])} at "
                    f"{document['interval_level']:.0%})")
    return (f"{given['model']['name']} on {gpus} x {groups[0]['gpu']['name']} "
            f"({cluster['name']}), {degrees or 'one GPU'}\n"
            f"step time  {seconds(document['step_time_s'])}{interval}, {document['provenance']}"
            f"{_predictor(document['predictor'])}")


def _predictor(digest: str) -> str:
    return "" if digest == ANALYTIC else f"\npredictor  {digest[:SHORT]}"


def _breakdown(document: Mapping[str, Any]) -> str:
    total = document["step_time_s"]
    lines = ["where it goes"]
    for name, value in document["breakdown"].items():
        share = value / total if total > 0 else 0.0
        if share >= 0.0005:
            bar = "#" * round(BAR * share)
            lines.append(f"  {NAMES.get(name, name):<17}{seconds(value):>10} {share:>6.1%}  {bar}")
    return "\n".join(line.rstrip() for line in lines)


def _throughput(rates: Mapping[str, Any]) -> str:
    peak = f"{rates['peak_flops'] / 1e12:,.0f} TFLOP/s dense"
    return "\n".join([
        "throughput",
        f"  {rates['tokens_per_s']:,.0f} tokens/s, "
        f"{rates['tokens_per_s_per_gpu']:,.0f} per GPU, {rates['samples_per_s']:,.2f} samples/s",
        f"  {rates['model_tflops_per_gpu']:,.1f} model TFLOP/s per GPU, "
        f"MFU {rates['mfu']:.1%}, HFU {rates['hfu']:.1%} of {peak}",
        f"  FLOP counted: {rates['flops_convention']}",
    ])


def _memory(memory: Mapping[str, Any]) -> str:
    capacity = memory["capacity_bytes"]
    used = memory.get("device_bytes", memory["reserved_bytes"])
    verdict = VERDICTS.get(memory["verdict"], memory["verdict"])
    lines = [
        f"memory: {verdict}, {gib(capacity - used)} of {gib(capacity)} GiB left on the fullest "
        "rank"]
    ranks = memory["ranks"]
    if not ranks:
        return lines[0]
    names = [name for name in ranks[0] if name != "pp_rank"
             and any(rank[name] > 0 for rank in ranks)]
    lines.append("  GiB on each pipeline rank")
    header = ["rank", *(name.removesuffix("_bytes").replace("_", " ") for name in names)]
    widths = [max(6, len(word)) for word in header]
    rows = [[str(rank["pp_rank"]), *(gib(rank[name]) for name in names)] for rank in _shown(ranks)]
    for row in (header, *rows):
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  " + "  ".join(cells))
    if len(rows) < len(ranks):
        lines.append(f"  ({len(ranks) - len(rows)} more ranks: --json lists all)")
    return "\n".join(lines)


def _shown(ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return up to eight ranks: the first, the last and those between them evenly."""
    if len(ranks) <= 8:
        return ranks
    return [ranks[round(i * (len(ranks) - 1) / 7)] for i in range(8)]


def _assumed(assumed: Mapping[str, Any]) -> str:
    if not assumed:
        return ""
    lines = ["assumed"]
    lines += [f"  {name} = {plain(entry['value'])}  ({entry['source']})"
              for name, entry in assumed.items()]
    return "\n".join(lines)


def explanation(
    job: TrainingJob, strategy: Strategy, *, assumed: Mapping[str, Any],
    flags: Mapping[str, Any], settings: Mapping[str, Any],
) -> str:
    """Return every setting of the resolved pair and where it comes from."""
    values = {**asdict(job), **asdict(strategy)}
    lines = ["input"]
    for name in ("model", "cluster", *JOB_FIELDS, *STRATEGY_FIELDS):
        value = values[name]["name"] if name in ("model", "cluster") else values[name]
        lines.append(f"  {name:<32}{plain(value):<20}"
                     f"{_origin(name, assumed, flags, settings)}".rstrip())
    return "\n".join(lines) + "\n"


def _origin(
    name: str, assumed: Mapping[str, Any], flags: Mapping[str, Any], settings: Mapping[str, Any]
) -> str:
    if name in flags:
        return "flag"
    if settings.get(name) is not None:
        return "job file"
    if name in assumed:
        return f"framework: {assumed[name]['source']}"
    return "derived" if name in ("dp", "dp_shard", "etp") else "default"


def plain(value: object) -> str:
    """Return a value as YAML would write it on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(plain(item) for item in value) + "]"
    return str(value)


def seconds(value: float) -> str:
    """Return a duration with three digits and a fitting unit."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale or unit == "us":
            return f"{value / scale:.4g} {unit}"
    raise AssertionError("the last unit takes everything")


def gib(value: float) -> str:
    """Return bytes in GiB with one decimal."""
    return f"{value / GIB:.1f}"
