"""``--predictor`` and ``--analytic``: which model of times answers.

Opening a bundle imports what a prediction needs anyway and nothing else; the registry is imported
only for an address in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from predictor.catalog import data
from predictor.cli.output import note
from predictor.spec.errors import InputError

if TYPE_CHECKING:
    from predictor.bundle import Manifest
    from predictor.step.compose import Timer
    from predictor.timing.learned import LearnedTimer

DEFAULT, ANALYTIC = "default", "analytic"
REGISTRY = "models:"
SHORT = 12
"""Digits of a digest that people are shown."""
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Chosen:
    """The predictor that the options name."""

    timer: LearnedTimer | None = None
    """None for the analytic model."""
    digest: str = ANALYTIC
    """Of the bundle, or ``analytic``."""
    sources: frozenset[str] = frozenset()
    """Names of the tables that it learned from."""


def predictor_options(function: Function) -> Function:
    """Add --predictor and --analytic to a verb; they arrive as ``predictor`` and ``analytic``."""
    function = click.option("--analytic", is_flag=True,
                            help="Use the analytic models only, nothing learned.")(function)
    return click.option(
        "--predictor", metavar="NAME|FOLDER|models:/NAME@ALIAS", default=None,
        help="Learned predictor: default, analytic, a bundle's folder or an address in the model "
        f"registry.  [default: {DEFAULT}]")(function)


def timer_of(name: str | None, analytic: bool) -> tuple[Timer, str]:
    """Return what times the operations of a step, and the bundle's digest or ``analytic``.

    Raises
    ------
    InputError
        As :func:`chosen`.
    """
    from predictor.timing.analytic import AnalyticTimer

    found = chosen(name, analytic)
    return found.timer or AnalyticTimer(), found.digest


def chosen(name: str | None, analytic: bool) -> Chosen:
    """Return the predictor that ``--predictor name`` and ``--analytic`` stand for.

    Parameters
    ----------
    name
        ``default`` (what comes with the package), ``analytic``, a bundle's folder or an address in
        the model registry; None when the option was not given.
    analytic
        Whether ``--analytic`` was given.

    Raises
    ------
    InputError
        When the two contradict each other, ``name`` names nothing, or the bundle is damaged.
    """
    if analytic and name not in (None, ANALYTIC):
        raise InputError.of("one-predictor", f"--analytic contradicts --predictor {name}",
                            "leave one of them out", "predictor")
    if analytic or name == ANALYTIC:
        return Chosen()
    return _opened(_folder(name or DEFAULT))


def shown_version(version: str) -> str:
    """Return the version of the package with the digest and the date of its predictor.

    Reads the manifest only. A manifest that cannot be read is named, not refused: the version
    stays what it is.
    """
    folder = data.model_folder()
    if not folder.is_dir():
        return version
    try:
        manifest = _manifest(folder)
    except (InputError, OSError):
        return f"{version} (predictor cannot be read)"
    return f"{version} (predictor {manifest.digest[:SHORT]}, trained {manifest.created[:10]})"


def _folder(name: str) -> Path:
    """Return the folder of a bundle."""
    if name == DEFAULT:
        return data.default_predictor()
    if name.startswith(REGISTRY):
        from predictor.training.registry import fetch

        return fetch(name)
    if not Path(name).is_dir():
        raise InputError.of(
            "known-predictor", f"there is no learned predictor {name!r}: no folder has that name",
            f"give {DEFAULT}, {ANALYTIC}, the folder of a bundle or models:/NAME@ALIAS, or leave "
            "it out", "predictor")
    return Path(name)


def _opened(folder: Path) -> Chosen:
    from predictor.bundle import open_bundle
    from predictor.timing.learned import LearnedTimer

    found = open_bundle(folder)
    note(f"predictor {found.digest[:SHORT]} from {folder}, trained {found.manifest.created[:10]}")
    return Chosen(LearnedTimer(found.models), found.digest,
                  frozenset(source.name for source in found.manifest.sources))


def _manifest(folder: Path) -> Manifest:
    from predictor.bundle.format import LARGEST_MANIFEST_BYTES, MANIFEST, parse_manifest

    with (folder / MANIFEST).open("rb") as file:
        return parse_manifest(file.read(LARGEST_MANIFEST_BYTES))
