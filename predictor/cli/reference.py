"""The command's reference, made from the command: ``python -m predictor.cli.reference``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import cleandoc
from pathlib import Path

import click

from predictor.cli.main import VERBS, root

HEAD = """\
# The command line

`predict-time VERB [OPTIONS]`. Results go to standard output, everything else to standard error.
Every verb has `--json` (one JSON document on standard output), `--output FILE` (the document in a
file), `-v`, `-q` and `--debug`. Colour is never used when `NO_COLOR` is set or the output is not a
terminal.

| exit code | meaning |
|---|---|
| 0 | answered; a job that does not fit and a refused row are answers |
| 1 | failure, or what `--fail-on` names |
| 2 | wrong input: one line for each problem, with the rule and what to change |
| 3 | no feasible strategy |
| 130 | interrupted |

What is given wins in this order: a flag, the job file (`--config`), the cluster file, the target
framework's default, ours. `--explain-input` shows which it was for every setting.

A job file holds `model`, `cluster`, `nodes` and any field below under its name with underscores
(`micro_batch_size: 2`); `model` and `cluster` are a name, a file, or keys and values. The `input`
of a JSON document holds all of them again.

Environment: `PREDICT_TIME_CACHE` (folder of what is kept between runs, the MLflow store among it),
`MLFLOW_TRACKING_URI` (another store or server), `PREDICT_TIME_REFERENCE` (folder of measured tables
for tests and experiments).

This page is made by `python -m predictor.cli.reference docs/cli.md`.
"""


def reference() -> str:
    """Return the page as Markdown."""
    return HEAD + "".join(_verbs(root, "predict-time", VERBS))


def _verbs(group: click.Group, path: str, names: Iterable[str]) -> Iterator[str]:
    context = click.Context(group)
    for name in names:
        command = group.get_command(context, name)
        assert command is not None
        yield f"\n## {path} {name}\n\n{_verb(command)}"
        if isinstance(command, click.Group):
            yield from _verbs(command, f"{path} {name}", command.list_commands(context))


def _verb(command: click.Command) -> str:
    if isinstance(command, click.Group):
        return cleandoc(click.unstyle(command.help or "")) + "\n"
    lines = [cleandoc(click.unstyle(command.help or "")), "", "| option | meaning |", "|---|---|"]
    return "\n".join([*lines, *_rows(command)]) + "\n"


def _rows(command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=command.name)
    for param in command.params:
        record = param.get_help_record(context)
        if record is None:
            metavar = param.make_metavar(context)
            yield f"| `{metavar}` | |"
            continue
        names, text = (" ".join(part.split()).replace("|", "\\|") for part in record)
        yield f"| `{names}` | {text} |"


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
def write(path: Path) -> None:
    """Write the page to PATH."""
    path.write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    write()
