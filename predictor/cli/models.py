"""``predict-time models``: the registered versions of the learned predictor, and which is used."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from predictor.cli.output import (
    check_outputs, emit, note, output_options, verbosity_options, warn,
)
from predictor.training.record import pending
from predictor.training.registry import (
    NAMES, Champion, Version, list_versions, promote, rollback,
)
from predictor.training.tracking import log_pending
from predictor.version import __version__

HEADINGS = ("name", "version", "aliases", "created", "run", "MAPE")


class _Group(click.Group):
    """A group whose verbs take -v, -q and --debug as every verb does."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            known = {option for param in found.params for option in param.opts}
            found.params += [option for option in verbosity_options()
                             if known.isdisjoint(option.opts)]
        return found


@click.group("models", cls=_Group)
def command() -> None:
    """List the registered versions of the learned predictor, promote one, or go back.

    The store is the one that MLFLOW_TRACKING_URI names, or a file in the user's cache folder.
    """


@command.command("list")
@output_options
def listing(as_json: bool, output: Path | None) -> None:
    """List the registered versions, their aliases and their errors."""
    check_outputs({"--output": output})
    versions = list_versions()
    _emit({"versions": [asdict(version) for version in versions]}, _listed(versions),
          as_json=as_json, output=output)


@command.command("promote", no_args_is_help=True)
@click.argument("name", type=click.Choice(NAMES))
@click.option("--version", type=click.IntRange(min=1), required=True, help="Version to promote.")
@output_options
def promoting(name: str, version: int, as_json: bool, output: Path | None) -> None:
    """Make a version of NAME the champion.

    Refused when it predicts any group of rows worse than the champion by more than 0.5 points of
    MAPE.
    """
    check_outputs({"--output": output})
    _emit_champion(promote(name, version), as_json=as_json, output=output)


@command.command("rollback", no_args_is_help=True)
@click.argument("name", type=click.Choice(NAMES))
@output_options
def going_back(name: str, as_json: bool, output: Path | None) -> None:
    """Make the previous champion of NAME the champion again."""
    check_outputs({"--output": output})
    _emit_champion(rollback(name), as_json=as_json, output=output)


@command.command("log", no_args_is_help=True)
@click.option("--runs", required=True, type=click.Path(path_type=Path), metavar="FOLDER",
              help="Folder that holds the run folders.")
@output_options
def logging_(runs: Path, as_json: bool, output: Path | None) -> int:
    """Log the trainings that could not be logged when they ran.

    The exit code is 1 when one of them still could not be logged.
    """
    check_outputs({"--output": output})
    logged = log_pending(runs, progress=lambda part: note(f"logging {part}"),
                         warn=lambda message: warn([message]))
    waiting = [record.run_id for record in pending(runs)]
    _emit({"logged": logged, "pending": waiting},
          f"{len(logged)} runs logged, {len(waiting)} pending", as_json=as_json, output=output)
    return 1 if waiting else 0


def _emit(found: dict[str, Any], text: str, *, as_json: bool, output: Path | None) -> None:
    emit({"schema_version": 1, "predict_time_version": __version__, **found}, lambda: text,
         as_json=as_json, output=output)


def _emit_champion(found: Champion, *, as_json: bool, output: Path | None) -> None:
    before = "" if found.before is None else f", before it was {found.before}"
    _emit(asdict(found), f"{found.name}: version {found.version} is the champion{before}",
          as_json=as_json, output=output)


def _listed(versions: Sequence[Version]) -> str:
    rows = [_row(version) for version in versions]
    if not sys.stdout.isatty():
        return "\n".join("\t".join(row) for row in rows)
    return _table(rows)


def _row(version: Version) -> tuple[str, ...]:
    totals = ", ".join(f"{group.removesuffix('/all')} {value:.1f} %"
                       for group, value in version.mape.items() if group.endswith("/all"))
    return (version.name, str(version.version), ",".join(version.aliases), version.created,
            version.run_id, totals)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    from rich.console import Console  # only a terminal needs it
    from rich.table import Table

    table = Table()
    for heading in HEADINGS:
        table.add_column(heading)
    for row in rows:
        table.add_row(*row)
    console = Console(width=shutil.get_terminal_size().columns)
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n")
