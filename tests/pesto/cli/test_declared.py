"""Options that a request declares once: on the command line, in help, in a job's schema, and when out of bounds."""

from typing import Annotated

import click
import msgspec
import pytest
from click.testing import CliRunner

from pesto.cli.main import GROUPS, VERBS, pesto
from pesto.cli.options import GroupedCommand, request_options
from pesto.cli.verbs.solve import solve_command
from pesto.core.errors import UsageError
from pesto.core.option import check_options, option, options_of
from pesto.core.settings import Settings
from pesto.verbs.jobs.checks import request_schema
from pesto.verbs.jobs.request import JobSettings
from pesto.verbs.requests import SolveRequest


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a verb that is only here."""

    wait_s: Annotated[float, option("Seconds to wait.", "Search", ge=0)] = 90.0
    tries: Annotated[int, option("Number of tries.", "Expert", ge=1, le=9, give="1 to 9 tries")] = 3
    loud: Annotated[bool, option("Say more.", "Output")] = False
    kind: Annotated[str | None, option("Kind of it.", "Input", metavar="KIND")] = None

    def __post_init__(self) -> None:
        check_options(self)


@click.command("only", cls=GroupedCommand)
@request_options(Inner)
def only(*, request: Inner) -> None:
    """Show the request."""
    click.echo(repr(request))


def shown(*words: str) -> str:
    done = CliRunner().invoke(only, words, standalone_mode=False)
    assert done.exception is None, done.exception
    return done.output


def test_fields_become_options_of_their_types_and_defaults() -> None:
    """Seconds are typed as durations, and the option is called without their unit."""
    assert "wait_s=90.0, tries=3, loud=False, kind=None" in shown()
    assert "wait_s=600.0, tries=2, loud=True, kind='x'" in shown(
        "--wait", "10m", "--tries", "2", "--loud", "--kind", "x"
    )
    wrong = CliRunner().invoke(only, ["--tries", "10"])
    assert (wrong.exit_code, "1<=x<=9" in wrong.output) == (2, True)


def test_help_has_each_option_once_in_its_group() -> None:
    text = shown("--help")
    heads = [line for line in text.splitlines() if line in ("Input:", "Machine:", "Search:", "Output:", "Expert:")]
    assert heads == ["Input:", "Search:", "Output:", "Expert:"]
    sections = dict(part.split(":\n", 1) for part in text.split("\n\n") if ":\n" in part)
    assert "--wait" in sections["Search"] and "[default: 90]" in sections["Search"]
    assert "--tries" in sections["Expert"] and "--kind KIND" in sections["Input"] and "--loud" in sections["Output"]


def test_values_out_of_bounds_are_refused_with_a_remedy() -> None:
    with pytest.raises(UsageError, match=r"^tries is 10 - give 1 to 9 tries$"):
        Inner(tries=10)
    with pytest.raises(UsageError, match=r"^wait_s is nan - give 0 or more$"):
        Inner(wait_s=float("nan"))
    with pytest.raises(UsageError, match=r"^loud is 1 - give True or False$"):
        Inner(loud=1)


def test_a_solve_has_every_setting_everywhere() -> None:
    """On the command line with its default and group, in a job, and in the schema of one with its bounds."""
    names = {each.name for each in options_of(Settings)}
    assert names == set(Settings.__dataclass_fields__) == set(JobSettings.__struct_fields__)
    params = {param.name: param for param in solve_command.params}
    for each in (*options_of(Settings), *options_of(SolveRequest)):
        param = params[each.name]
        assert param.help == each.text and param.group == each.note("group") and len(each.text.split()) > 2
        assert each.default is None or type(each.default)(param.default) == each.default
    body = request_schema("{name}")[1]["SolveSettings"]["properties"]
    assert set(body) == names
    assert body["gap"]["anyOf"][0] == {
        "type": "number", "minimum": 0, "exclusiveMaximum": 1, "description": params["gap"].help,
    }  # fmt: skip


def test_each_verb_is_in_one_group_of_the_help() -> None:
    grouped = [verb for verbs in GROUPS.values() for verb in verbs]
    assert sorted(grouped) == sorted(VERBS) and len(GROUPS) == 6


@pytest.mark.parametrize(("typed", "meant"), [("slove", "solve"), ("piplines", "pipeline")])
def test_a_misspelt_verb_is_told_the_nearest(typed, meant) -> None:
    done = CliRunner().invoke(pesto, [typed], standalone_mode=False)
    assert f"did you mean {meant}?" in str(done.exception)


def test_a_bare_solve_names_the_options_that_it_wants() -> None:
    done = CliRunner().invoke(pesto, ["solve"], standalone_mode=False)
    assert all(flag in str(done.exception) for flag in ("--model", "--graph", "--saved-model", "--function"))
