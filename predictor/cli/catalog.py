"""The ``catalog`` verb: lists what is known by name."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any, get_args

import click

from predictor.catalog.listing import Kind, list_entries
from predictor.cli.output import emit, output_options
from predictor.version import __version__

Row = tuple[str, str, str]


@click.command("catalog")
@click.argument("kind", type=click.Choice(get_args(Kind)))
@output_options
def command(kind: Kind, as_json: bool, output: Path | None) -> None:
    """List the models, clusters, GPUs or schedules that are known by name, with their sources."""
    rows = list_entries(kind)
    emit(_document(kind, rows), lambda: _text(kind, rows), as_json=as_json, output=output)


def _document(kind: Kind, rows: list[Row]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "predict_time_version": __version__,
        "kind": kind,
        "entries": [{"name": name, "summary": summary, "source": source}
                    for name, summary, source in rows],
    }


def _text(kind: Kind, rows: list[Row]) -> str:
    return _table(kind, rows) if sys.stdout.isatty() else _plain(rows)


def _plain(rows: list[Row]) -> str:
    """Return one line per entry, columns apart by tabs, for other programs to cut."""
    return "\n".join("\t".join(row) for row in rows)


def _table(kind: Kind, rows: list[Row]) -> str:
    from rich.console import Console  # only a terminal needs it
    from rich.table import Table

    table = Table(title=kind, title_justify="left")
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("summary")
    table.add_column("source", style="dim")
    for row in rows:
        table.add_row(*row)
    console = Console(width=shutil.get_terminal_size().columns)
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n")
