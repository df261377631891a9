"""Lines of a page for a terminal: none is wider than 80 columns that can be broken."""

import shlex
import textwrap
from collections.abc import Iterable

COLUMNS = 80
LABEL = 14
"""Columns before the text of a fact."""


def paragraph(text: str, indent: int = 0) -> str:
    """A text broken between words; its further lines are indented."""
    return textwrap.fill(
        text,
        COLUMNS,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


def fact(label: str, text: str) -> str:
    """What a page says of one thing: a label, and a text whose further lines stand below each other."""
    head = f"{label:{LABEL}s}" if len(label) < LABEL else f"{label} "
    # The label is put in place of as many characters that cannot be broken, so that its blanks stay.
    return head + paragraph("." * len(head) + text, LABEL)[len(head) :]


def command(label: str, words: Iterable[object]) -> str:
    """A command that can be typed as it stands: a line that is broken ends in a backslash."""
    parts: list[str] = []
    for word in map(str, words):
        if word.startswith("-") or not parts:
            parts.append(shlex.quote(word))
        else:  # an option and its value stay together
            parts[-1] += f" {shlex.quote(word)}"
    lines = parts[:1]
    for part in parts[1:]:
        if len(lines[-1]) + 1 + len(part) > COLUMNS - LABEL - 2:
            lines.append(part)
        else:
            lines[-1] += f" {part}"
    return f"{label:{LABEL}s}" + f" \\\n{'':{LABEL}s}".join(lines)
