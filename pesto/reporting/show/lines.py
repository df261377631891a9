"""Lines of a page: none that can be broken is wider than the terminal, 80 columns where there is none.

No colour is used, so that there is none to switch off.
"""

import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable

COLUMNS = 80
"""Where nobody looks: in a pipe or a file."""
_NARROWEST, _WIDEST = 40, 100
"""Narrower lines have no room beside a label, wider ones are hard to read."""
LABEL = 14
"""Columns before the text of a fact."""


def columns() -> int:
    """Columns of the terminal that stdout is, within what can be read; COLUMNS where it is none."""
    if sys.stdout is None or not sys.stdout.isatty():
        return COLUMNS
    return min(max(shutil.get_terminal_size((COLUMNS, 24)).columns, _NARROWEST), _WIDEST)


def paragraph(text: str, indent: int = 0) -> str:
    """A text broken between words; its further lines are indented."""
    return textwrap.fill(
        text,
        columns(),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


def fact(label: str, text: str) -> str:
    """Format a fact of a page: a label, and a text whose further lines are aligned below each other."""
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
        if len(lines[-1]) + 1 + len(part) > columns() - LABEL - 2:
            lines.append(part)
        else:
            lines[-1] += f" {part}"
    return f"{label:{LABEL}s}" + f" \\\n{'':{LABEL}s}".join(lines)
