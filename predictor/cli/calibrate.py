"""``predict-time calibrate``: a campaign's layers in, the coefficients of its machine out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from predictor.cli.output import check_outputs, emit, output_options, write_file
from predictor.cli.predictor_option import predictor_options, timer_of
from predictor.version import __version__

if TYPE_CHECKING:
    from predictor.step.calibration import Calibration


@click.command("calibrate", no_args_is_help=True)
@click.argument("campaign", type=click.Path(path_type=Path, file_okay=False))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.json",
              required=True, help="Calibration file that is written.")
@predictor_options
@output_options
def command(
    *, campaign: Path, out: Path, predictor: str | None, analytic: bool, as_json: bool,
    output: Path | None,
) -> int:
    """Learn from the folder CAMPAIGN what its machine does beside kernels and collectives.

    Timed layers say how long the host takes to launch work, what tensor parallelism and sharded
    parameters add to it, and timed overlaps how much communication slows computation. The file
    goes to --calibration, together with the same --predictor.
    """
    from predictor.training.calibrate import calibrate

    check_outputs({"--out": out, "--output": output}, [])
    timer, digest = timer_of(predictor, analytic)
    found = calibrate(campaign, timer, digest)
    write_file(out, found.to_json())
    document = _document(found, out)
    emit(document, lambda: report(document), as_json=as_json, output=output)
    return 0


def _document(found: Calibration, out: Path) -> dict[str, Any]:
    from dataclasses import asdict

    return {"schema_version": 1, "predict_time_version": __version__,
            "predictor": found.predictor, "calibration": found.digest, "file": str(out),
            "gpu": found.gpu, "implementation": found.implementation,
            "coefficients": asdict(found.coefficients), "fitted": dict(found.fitted)}


def report(document: Mapping[str, Any]) -> str:
    """Return what was fitted as text."""
    lines = [f"{document['gpu']}, {document['implementation']}", ""]
    lines += [f"  {name:<20} {_shown(name, value)}"
              for name, value in document["coefficients"].items()]
    lines += ["", "layers     timed  error before  after"]
    lines += [f"{name:<10} {one['layers']:>5}  {one['mape_before']:>10.1f} %  "
              f"{one['mape_after']:>4.1f} %"
              for name, one in document["fitted"].items() if isinstance(one, dict)]
    return "\n".join([*lines, "", f"written to {document['file']}"])


def _shown(name: str, value: float) -> str:
    if name.endswith("_per_byte"):
        return f"{value * 1e9:.3f} ns/byte"
    return f"{value * 1e6:,.1f} us" if name.endswith("_s") else f"{value:.3f}"
