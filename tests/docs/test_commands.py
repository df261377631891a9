"""Commands of `pesto` in the documentation name verbs and options that there are."""

import re
import shlex
from pathlib import Path

import click
import pytest

from pesto.cli.main import pesto

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
HANDED_OVER = ("cli.md", "api.md")
"""Pages that are made from the program."""


def commands(text: str) -> list[str]:
    """Return the lines of blocks of code that call `pesto`, joined where they go on, without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    blocks += re.findall(r"(?:^ {4}.*\n)+", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if re.match(r"\s*(?:\$ )?pesto [a-z]", line)]


def options_of(words: list[str]) -> tuple[click.Command | None, set[str]]:
    """Return the command that words name, and the options that it and the groups above it have."""
    command: click.Command | None = pesto
    known = {"--help"}
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        command = command.get_command(click.Context(command), words.pop(0))
        known |= {name for p in (command.params if command else ()) for name in (*p.opts, *p.secondary_opts)}
    return command, known


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in HANDED_OVER], ids=lambda page: page.stem)
def test_verbs_and_options_are_known(page: Path) -> None:
    """Each option of each command in a block is one of its verb's."""
    wrong = []
    for line in commands(page.read_text()):
        for part in re.split(r"\s[|&>;]+\s?", re.sub(r"\s#.*", "", line)):
            words = shlex.split(part.removeprefix("$ "))
            if words[:1] != ["pesto"]:
                continue
            command, known = options_of(words[1:])
            given = {word.partition("=")[0] for word in words[1:] if word.startswith("--")}
            given |= {word[:2] for word in words[1:] if re.match(r"-[a-z]", word)}
            if command is None or given - known:
                wrong.append((line, sorted(given - known)))
    assert wrong == []


def test_commands_are_read_from_both_kinds_of_blocks() -> None:
    """Fenced and indented, with a prompt and over two lines."""
    text = "```sh\npesto a --b\n```\n\ntext pesto no\n\n    $ pesto c \\\n        --d   # e\n\n    python f\n"
    assert commands(text) == ["pesto a --b", "$ pesto c          --d   # e"]
