"""The ``predict-time`` command: finds the verb, runs it and turns errors into exit codes.

Exit codes: 0 answered, 1 failure, 2 wrong input, 3 no feasible strategy, 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

import click

from predictor.cli.output import Verbosity, complain, fail, verbosity_options
from predictor.spec.errors import InputError, NoFeasibleStrategyError
from predictor.version import __version__

VERBS = {
    "step": "Predict the step time and the memory of one training job.",
    "evaluate": "Score predictions against a table of measurements.",
    "train": "Train the learned predictor from measured kernels and collectives.",
    "profile": "Measure a campaign of kernels, layers, collectives and training steps.",
    "calibrate": "Learn what a machine does beside its kernels from a campaign's layers.",
    "models": "List the learned predictor's versions, promote one, or go back.",
    "catalog": "List the models, clusters and GPUs that are known by name.",
}
"""Verb -> one line of help. The module is imported only when its verb is chosen."""

FAILURE, WRONG_INPUT, NO_ANSWER, INTERRUPTED = 1, 2, 3, 130


class _Verbs(click.Group):
    """A group that knows its verbs by name and imports only the one that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"predictor.cli.{cmd_name}").command
        known = {option for param in command.params for option in param.opts}
        command.params += [option for option in verbosity_options()
                           if known.isdisjoint(option.opts)]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from predictor.cli.predictor_option import shown_version  # not for --help

    click.echo(f"predict-time {shown_version(__version__)}")
    context.exit()


@click.group(
    "predict-time", cls=_Verbs, params=list(verbosity_options()),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False,
              callback=_show_version, help="Show the version and exit.")
def root() -> None:
    """Predict how long a distributed training step takes, and whether it fits in memory."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit. ``arguments`` default to the process's own."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; nothing escapes but SystemExit."""
    Verbosity.reset()
    return _guarded(lambda: _invoke(arguments))


def _invoke(arguments: Sequence[str] | None) -> int:
    given = None if arguments is None else list(arguments)
    answer = root.main(args=given, prog_name="predict-time", standalone_mode=False)
    return answer if isinstance(answer, int) else 0


def _guarded(action: Callable[[], int]) -> int:
    """Return what ``action`` returns, or the exit code of the error that it raises."""
    try:
        return action()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return WRONG_INPUT
    except InputError as error:
        return complain(map(str, error.problems), WRONG_INPUT)
    except click.ClickException as error:
        return complain([error.format_message()], error.exit_code)
    except NoFeasibleStrategyError as error:
        return complain([str(error)], NO_ANSWER)
    except (KeyboardInterrupt, click.Abort):
        return complain(["interrupted"], INTERRUPTED)
    except BrokenPipeError:
        sys.stdout = None  # nobody reads: no error on the last flush
        return FAILURE
    except Exception as error:
        return fail(error, FAILURE)
