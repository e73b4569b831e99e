"""Where words go: results to standard output or a file, everything else to standard error."""

from __future__ import annotations

import json
import os
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click

from predictor.spec.errors import InputError, Problem

LONGEST_LINE = 2000
Function = TypeVar("Function", bound=Callable[..., Any])


class Verbosity:
    """How much this process says on standard error."""

    level: ClassVar[int] = 0
    """-1 errors only, 0 warnings too, 1 and more also what is going on."""
    debug: ClassVar[bool] = False

    @classmethod
    def reset(cls) -> None:
        """Go back to the default; a process may run several commands (tests do)."""
        cls.level, cls.debug = 0, False


def verbosity_options() -> Iterator[click.Option]:
    """Yield the options that every verb has: -v, -q and --debug."""

    def louder(_: click.Context, __: click.Parameter, count: int) -> None:
        Verbosity.level += count

    def quieter(_: click.Context, __: click.Parameter, quiet: bool) -> None:
        if quiet:
            Verbosity.level = -1

    def debugging(_: click.Context, __: click.Parameter, debug: bool) -> None:
        Verbosity.debug |= debug

    yield click.Option(["-v", "--verbose"], count=True, expose_value=False, callback=louder,
                       help="Say what is going on.")
    yield click.Option(["-q", "--quiet"], is_flag=True, expose_value=False, callback=quieter,
                       help="Say nothing but errors.")
    yield click.Option(["--debug"], is_flag=True, expose_value=False, callback=debugging,
                       help="Show the traceback of a failure.")


def output_options(function: Function) -> Function:
    """Add --json and --output to a verb; they arrive as ``as_json`` and ``output``."""
    function = click.option("--output", type=click.Path(dir_okay=False, path_type=Path),
                            help="Write the JSON document to this file.")(function)
    return click.option("--json", "as_json", is_flag=True,
                        help="Print one JSON document instead of text.")(function)


def emit(document: Mapping[str, Any], text: Callable[[], str], *, as_json: bool,
         output: Path | None) -> None:
    """Print the result, and write its document to ``output`` when given."""
    if as_json or output is not None:
        rendered = json.dumps(document, indent=2, allow_nan=False)
        if output is not None:
            write_file(output, rendered + "\n")
    click.echo(rendered if as_json else text())


def write_file(path: Path, text: str) -> None:
    """Write ``text`` so that ``path`` holds all of it or what it held before.

    A link stays a link, a file keeps its mode, and a device or pipe is written to as it is.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
        else:
            _replace(target, text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError.of("writable-file", f"cannot write {path}: {reason}",
                            "choose another file") from None


def _replace(path: Path, text: str) -> None:
    mode = path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~_umask()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[str | Path] = ()) -> None:
    """Refuse, before any work, what could not be written or would overwrite something in use.

    Raises
    ------
    InputError
        With one problem for each: no such folder, ``-`` as a file, two outputs in one file, or a
        file that is also read.
    """
    read = [Path(one) for one in inputs if one and "\0" not in str(one)]
    problems, taken = [], {path.resolve(): "the input" for path in read}
    for flag, path in outputs.items():
        if path is None or "\0" in str(path):
            continue  # writing reports what no path can hold
        where = path.resolve()
        if path.name == "-":
            problems.append(Problem("output-file", "- is not a file",
                                    "leave it out: results go to standard output", flag))
        elif not where.parent.is_dir():
            problems.append(Problem("output-folder", f"there is no folder {path.parent}",
                                    "make it or choose another", flag))
        elif where in taken and (where.is_file() or not where.exists()):
            problems.append(Problem("output-in-use", f"{path} is also {taken[where]}",
                                    "choose another file", flag))
        taken[where] = flag
    if problems:
        raise InputError(problems)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def note(message: str) -> None:
    """Say what is going on, with -v."""
    if Verbosity.level >= 1:
        click.echo(one_line(message), err=True)


def warn(messages: Iterable[object]) -> None:
    """Say what is doubtful, one line each."""
    if Verbosity.level >= 0:
        for message in messages:
            click.echo(f"warning: {one_line(str(message))}", err=True)


def complain(messages: Iterable[str], exit_code: int) -> int:
    """Say what is wrong, one line for each problem, and return the exit code."""
    for message in messages:
        click.echo(f"error: {one_line(message)}", err=True)
    return exit_code


def fail(error: Exception, exit_code: int) -> int:
    """Report a failure of ours: the traceback with --debug, one line otherwise."""
    if Verbosity.debug:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        return exit_code
    kind = type(error).__name__
    return complain([f"{kind}: {error}; this is a defect, --debug shows where"], exit_code)


def one_line(message: str) -> str:
    """Return ``message`` on one line, without control characters, and not endlessly long."""
    flat = " ".join(message.split())
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in flat)
    return shown if len(shown) <= LONGEST_LINE else shown[: LONGEST_LINE - 3] + "..."
