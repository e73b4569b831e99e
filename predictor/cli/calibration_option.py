"""``--calibration``: the coefficients of one machine, fitted by ``predict-time calibrate``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from predictor.cli.predictor_option import SHORT
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    from predictor.step.calibration import Calibration

Function = TypeVar("Function", bound=Callable[..., Any])


def calibration_option(function: Function) -> Function:
    """Add --calibration to a verb; it arrives as ``calibration``."""
    return click.option(
        "--calibration", type=click.Path(path_type=Path), metavar="FILE.json", default=None,
        help="What predict-time calibrate learned of the machine, with the same --predictor."
    )(function)


def calibration_of(path: Path | None, predictor: str) -> Calibration | None:
    """Return the calibration in a file; None without one.

    Raises
    ------
    InputError
        When the file cannot be read, is none, or corrects another predictor.
    """
    if path is None:
        return None
    from predictor.step.calibration import parse_calibration

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise InputError.of("calibration-file", f"cannot read {path}: {reason}",
                            "give the file that predict-time calibrate wrote",
                            "--calibration") from None
    found = parse_calibration(text)
    if found.predictor != predictor:
        raise InputError.of(
            "calibration-predictor", f"{path} corrects the predictor {found.predictor[:SHORT]} and "
            f"this is {predictor[:SHORT]}", "give that --predictor, or calibrate again",
            "--calibration")
    return found
