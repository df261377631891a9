"""Write docs/reference/cli.md from the commands of `pesto`, as click knows them; a test compares the page.

python docs/make_cli.py
"""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import click

from pesto.cli.main import VERBS
from pesto.cli.main import pesto as program
from pesto.core.errors import Exit, PestoError

PAGE = Path(__file__).resolve().parent / "reference" / "cli.md"
HEAD = """# Command line

`pesto VERB --help` shows the same. Values of options are completed by Tab after
`eval "$(_PESTO_COMPLETE=bash_source pesto)"` (`zsh_source`, `fish_source`). With `--json` a verb prints exactly
one JSON object, also of an error (`error`, `message`, `where`, `remedy`, `exit_code`). Ctrl-C keeps the best plan.

*Made from the program by `python docs/make_cli.py`.*
"""
OTHER_CODES = {
    Exit.OK: "Success.",
    Exit.BUG: "A bug in Pesto; please report it.",
    Exit.DIFFERENT: "`pesto diff --exit-code`: the plans differ.",
    Exit.INTERRUPTED: "Ctrl-C; the best plan found was kept.",
    Exit.TERMINATED: "SIGTERM; the best plan found was kept.",
}
"""Exit codes that no class of error has."""


def main() -> None:
    """Write the page."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render())


def render() -> str:
    """Return the whole page."""
    top = click.Context(program, info_name="pesto")
    index = [
        "| verb | does |",
        "|---|---|",
        *(f"| [{v}](#pesto-{v}) | {cell(line)} |" for v, (_, line) in VERBS.items()),
    ]
    parts = [HEAD, *index, "", *exit_codes()]
    for verb in VERBS:
        command = program.get_command(top, verb)
        if command is not None:
            parts += sections(command, click.Context(command, info_name=verb, parent=top))
    return "\n".join(parts)


def exit_codes() -> Iterator[str]:
    """Yield the table of exit codes: what the errors that end with each say of themselves."""
    errors = {error.exit_code: error.__doc__ or "" for error in subclasses(PestoError)}
    yield from ("## Exit codes", "", "They are part of the interface and never change meaning.", "")
    yield from ("| code | means |", "|---:|---|")
    for code in Exit:
        yield f"| {code.value} | {cell(OTHER_CODES.get(code) or errors.get(code, ''))} |"
    yield ""


def subclasses(error: type[PestoError]) -> Iterator[type[PestoError]]:
    """Yield the kinds of an error, those of `pesto.core.errors` last, so that they are kept."""
    kinds = error.__subclasses__()
    for kind in sorted(kinds, key=lambda one: one.__module__ == "pesto.core.errors"):
        yield from subclasses(kind)
        yield kind


def sections(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the section of a command, then those of its own commands."""
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"## {context.command_path}", "", f"`{context.command_path} {usage}`", "", text(command.help or ""), "")
    rows = [record for parameter in command.params if (record := parameter.get_help_record(context))]
    if rows:
        yield from (
            "| option | does |",
            "|---|---|",
            *(f"| `{cell(left)}` | {cell(right)} |" for left, right in rows),
            "",
        )
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from sections(below, click.Context(below, info_name=name, parent=context))


def text(said: str) -> str:
    """Return the help text of a command as paragraphs; what click must not rewrap is code."""
    paragraphs = re.split(r"\n\s*\n", said.replace("\f", "").strip())
    return "\n\n".join(verbatim(one) if one.lstrip(" ").startswith("\b") else escaped(one) for one in paragraphs)


def verbatim(paragraph: str) -> str:
    """Return lines that click prints as they are (those below a backspace) as a block of code."""
    lines = dedent(paragraph.partition("\n")[2])
    return f"```text\n{lines}\n```"


def escaped(words: str) -> str:
    """Return words that Markdown shows as they are."""
    return re.sub(r"([<>*_\[\]])", r"\\\1", words)


def cell(words: str) -> str:
    """Return words for a cell of a table."""
    return " ".join(words.split()).replace("|", "\\|")


if __name__ == "__main__":
    main()
