"""The model card of a training: ``python -m predictor.training.card RUN > docs/model-card.md``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from predictor.training.record import RunRecord, Scores, read_run

HEAD = """\
# Model card of the default predictor

Corrections of analytic kernel and collective times, learned by gradient boosting. What they are,
how they are trained and when not to trust them: [training.md](training.md). This page is made by
`python -m predictor.training.card RUN` from the run folder that a training wrote.
"""
MEANING = {
    "analytic": "the analytic model alone, on the same rows",
    "shape": "sizes never seen, on GPUs and libraries that were",
    "gpu": "GPUs (systems, for collectives) never seen",
    "source": "sources never seen: other people's ways of measuring",
}


def card(record: RunRecord) -> str:
    """Return the card as Markdown: data, splits, scores by family."""
    return "\n".join([HEAD, *_data(record), *_scores(record), *_groups(record)]) + "\n"


def _data(record: RunRecord) -> Iterator[str]:
    yield f"Predictor `{record.digest[:12]}`, trained {record.started[:10]}.\n"
    yield "## Data\n"
    yield "| table | source | licence | measurements learned from | sha256 |"
    yield "|---|---|---|---|---|"
    for one in record.datasets:
        yield (f"| {one.name} | {one.source} | {one.licence} | {one.rows:,} "
               f"| `{one.sha256[:12]}` |")
    rejected = {name.removeprefix("rejected: "): value for name, value in record.params.items()
                if name.startswith("rejected: ")}
    yield "\nLeft out by general checks: " + "; ".join(
        f"{why} {count:,}" for why, count in rejected.items()) + "."


def _scores(record: RunRecord) -> Iterator[str]:
    yield "\n## Scores on rows held out\n"
    yield "Percent. Intervals promise 90 %; half widths are relative to the prediction.\n"
    yield "| model | held out | rows | MAPE | median | bias | covered | half width |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, groups in record.metrics.items():
        model, _, what = name.rpartition("_")
        yield f"| {model} | {what} | {_cells(groups['all'])} |"
    yield "\nHeld out: " + "; ".join(f"*{name}*, {text}" for name, text in MEANING.items()) + "."


def _groups(record: RunRecord) -> Iterator[str]:
    yield "\n## By family, sizes never seen\n"
    yield "| family / phase / type | rows | MAPE | median | bias | covered | half width |"
    yield "|---|---|---|---|---|---|---|"
    for name, groups in record.metrics.items():
        if name.endswith("_shape"):
            for group, scores in groups.items():
                if group != "all":
                    yield f"| {group} | {_cells(scores)} |"


def _cells(scores: Scores) -> str:
    numbers = (scores.mape, scores.median_ape, scores.bias, scores.coverage, scores.half_width)
    return f"{scores.rows:,} | " + " | ".join(
        "" if value is None else f"{value:.1f}" for value in numbers)


@click.command()
@click.argument("run", type=click.Path(path_type=Path, file_okay=False))
def write(run: Path) -> None:
    """Print the card of the training in the folder RUN."""
    click.echo(card(read_run(run)), nl=False)


if __name__ == "__main__":
    write()
