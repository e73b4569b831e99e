"""A progress line on a terminal, for what takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from predictor.cli.output import Verbosity

PATIENCE_S = 2.0


class Rows:
    """Counts rows on standard error while work goes on; silent when it is quick or piped."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._began = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __call__(self, done: int, total: int) -> None:
        """Show that ``done`` rows of ``total`` are finished."""
        if self._bar is None and self._wanted():
            self._bar = _bar(self._title)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _wanted(self) -> bool:
        slow = time.monotonic() - self._began > PATIENCE_S
        return slow and sys.stderr.isatty() and Verbosity.level >= 0


def _bar(title: str) -> Any:
    from rich.console import Console  # only a terminal and slow work need it
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(TextColumn("{task.description}"), MofNCompleteColumn(), TimeRemainingColumn(),
                   console=Console(stderr=True), transient=True)
    bar.add_task(title, total=None)
    bar.start()
    return bar
