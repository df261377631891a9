"""The command line: verbs in modules of `pesto.cli.verbs`, each loaded when one of them is called."""

import atexit
import gc
import importlib
import itertools
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from difflib import get_close_matches
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from pesto.cli.printed import ANSWERED, PROGRESS, aside, to_json
from pesto.core.distribution import VERSION
from pesto.core.errors import ErrorReport, Exit, describe_error, split_remedy
from pesto.planning.solving.interrupt import received, watch_signals
from pesto.reporting.show.screen import one_line, screens

CLOCK: Callable[[], float] = time.perf_counter
"""Returns the seconds that starting is counted in."""
STARTED = "started"
"""Key of the context's object: when the command line was begun, by CLOCK."""


def note_start(said: dict[str, Any]) -> None:
    """Write down in the object of a context that the command line begins now."""
    said[STARTED] = CLOCK()


VERBS = {
    "solve": ("solve", "Find a checked placement and schedule for a training step."),
    "compare": ("grids", "Place a step by every method of the literature, and compare the plans."),
    "split": ("split", "Cut every tensor of a step into parts for several workers, so that least is sent."),
    "pipeline": ("pipeline", "Cut a chain of layers into stages, and schedule its batches one behind the other."),
    "sweep": ("grids", "Solve a step on a grid of changed clusters: what if devices or links were faster?"),
    "import": ("reading", "Write any supported graph as the project's own graph file."),
    "inspect": ("reading", "Show what a step is found to be, and what would be refused, without planning."),
    "costs": ("reading", "List what each op of a step costs, and why, to put other numbers in."),
    "optimize": ("reading", "Run TensorFlow's graph optimizer once, before planning."),
    "simulate": ("plans.simulate", "Predict the step time of a plan, also on another cluster."),
    "explain": ("plans.examine", "Say why a step takes as long as it does, and what would help."),
    "diff": ("plans.examine", "Say wherein two plans differ."),
    "draw": ("plans.export", "Draw a plan, or write it as GraphML or DOT for other programs."),
    "report": ("plans.examine", "Write a plan as one page: a timeline, what waits for what, bound and gap."),
    "trace": ("plans.export", "Write a planned step for Perfetto or TensorBoard."),
    "check": ("plans.examine", "Verify a plan against its graph with the independent checker."),
    "apply": ("plans.apply", "Write a plan's devices and order into a GraphDef, for another program."),
    "run": ("plans.run", "Run a step by its plan on TensorFlow and verify it against a run without one."),
    "profile": ("measuring", "Measure each op of a step on the devices at hand."),
    "calibrate": ("measuring", "Measure the links between the devices at hand, and write a cluster file."),
    "instance": (
        "problems",
        "Write a scheduling problem: of a seeded family, or a training step's coarse graph.",
    ),
    "schedule": ("problems", "Solve a problem file with any solver, or check somebody's schedule of it."),
    "study": ("study", "Compare solvers and settings over a grid of instances, and report it."),
    "studies": ("catalog", "List the studies that ship, and what each asks."),
    "reproduce": ("reproduce", "Make the tables and figures of the papers again, beside the printed numbers."),
    "serve": ("serve", "Run the placement service: jobs over HTTP, kept through any crash."),
    "jobs": ("jobs", "List, show, watch and cancel jobs of a placement service, and fetch their plans."),
    "models": ("catalog", "List the built-in models and their variants."),
    "clusters": ("catalog", "List the cluster presets, or show one wholly."),
    "solvers": ("catalog", "List the solvers and whether they are installed."),
    "doctor": ("doctor", "Check this installation; print one block to paste into a report."),
}
"""Verb -> (module in pesto.cli.verbs, one line of help). Add a verb: one file there and one row here."""


GROUPS = {
    "Plan a step": ("solve", "split", "pipeline", "compare", "sweep"),
    "Read a step": ("import", "inspect", "costs", "optimize"),
    "Study a plan": ("check", "explain", "report", "simulate", "diff", "draw", "trace"),
    "Run on TensorFlow": ("run", "apply", "profile", "calibrate"),
    "Research": ("instance", "schedule", "study", "studies", "reproduce"),
    "Service and installation": ("serve", "jobs", "models", "clusters", "solvers", "doctor"),
}
"""Groups of verbs in the help."""


class _UnreadError(Exception):
    """Signal that nobody reads stdout any more (`pesto models | head -1`), which is no failure."""


@contextmanager
def _read() -> Iterator[None]:
    """Raise _UnreadError in place of the error that click takes for a failure."""
    try:
        yield
    except BrokenPipeError as gone:
        raise _UnreadError from gone


class _Verbs(click.Group):
    """Imports a verb's module only when it runs, so that --help is quick."""

    def make_context(self, *given: Any, **named: Any) -> click.Context:
        with _read():
            return super().make_context(*given, **named)

    def invoke(self, ctx: click.Context) -> Any:
        with _read():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"pesto.cli.verbs.{VERBS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for group, verbs in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(verb, VERBS[verb][1]) for verb in verbs])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and (near := get_close_matches(args[0], VERBS, n=1)) and near[0] != args[0]:
            raise click.UsageError(f"No such command {args[0]!r} - did you mean {near[0]}? or see pesto --help", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION)
def pesto() -> None:
    """Optimal placement and schedule of a training step on several GPUs.

    \b
    Exit codes: 0 done and verified; 1 bug; 2 usage or configuration; 3 input
    refused; 4 proven infeasible; 5 nothing found within the limits; 6 an answer
    failed verification; 7 solver missing or crashed; 8 file not read or written;
    9 plan or profile of another graph; 10 two plans differ (diff --exit-code);
    130, 143 interrupted (the best plan is saved).
    """


class _OneLine(logging.Formatter):
    """Formatter that writes a record on one line, whatever it quotes."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's text."""
        return one_line(super().format(record))


def main() -> None:
    """Run the command line and exit with one of `pesto.core.errors.Exit`."""
    atexit.register(gc.freeze)  # an ending interpreter searches all objects for cycles: a quarter of a second of a core
    # click completes in bytes, for a shell
    with watch_signals(), nullcontext() if "_PESTO_COMPLETE" in os.environ else screens():
        # Show this project's own warnings, and which large files are read and written; nobody else's.
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_OneLine("pesto: %(levelname)s: %(message)s"))
        logging.getLogger("pesto").addHandler(handler)
        logging.getLogger(PROGRESS).setLevel(logging.INFO)
        said: dict[str, Any] = {}
        note_start(said)
        try:
            code: int = pesto.main(prog_name="pesto", standalone_mode=False, obj=said) or Exit.OK  # of a verb's Exit
        except _UnreadError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = Exit.OK
        except (Exception, KeyboardInterrupt) as error:
            failure = _describe(error)
            code = failure.exit_code
            as_json = "--json" in itertools.takewhile(lambda word: word != "--", sys.argv[1:])
            if as_json and ANSWERED not in said:
                with suppress(OSError):
                    click.echo(to_json(failure.as_object()))
            if isinstance(error, NoArgsIsHelpError):
                error.show()
            else:
                aside(f"pesto: {one_line(failure.text)}")
    sys.exit(code)


def _describe(error: Exception | KeyboardInterrupt) -> ErrorReport:
    """Return the report of an error; raise a bug itself where PESTO_TRACEBACK asks for that.

    A value that click refuses has as its remedy the values that the option takes, where they are known.
    """
    if not isinstance(error, click.ClickException):
        report = describe_error(KeyboardInterrupt() if isinstance(error, click.Abort) else error, received())
        if report.exit_code == Exit.BUG and os.environ.get("PESTO_TRACEBACK"):
            raise error
        return report
    text, accepted = error.format_message().rstrip("."), getattr(getattr(error, "param", None), "type", None)
    if isinstance(error, click.MissingParameter) or " - " not in text:
        remedy = f"see {getattr(getattr(error, 'ctx', None), 'command_path', 'pesto')} --help"
        if isinstance(error, click.BadParameter) and isinstance(accepted, click.Choice):
            remedy = f"give one of {', '.join(map(str, accepted.choices))}"
        elif isinstance(error, click.BadParameter) and isinstance(accepted, click.IntRange | click.FloatRange):
            number = "a whole number" if isinstance(accepted, click.IntRange) else "a number"
            above = f" above {accepted.min}" if accepted.min_open else f", {accepted.min} or more"
            span = above if accepted.max is None else f" from {accepted.min} to {accepted.max}"
            remedy = f"give {number}{span}"
        text = f"{text} - {remedy}"
    message, remedy = split_remedy(text)
    return ErrorReport(message, Exit.USAGE, remedy)
