"""Escaped terminal output: only line ends and cursor moves of Pesto act on a terminal."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_CLEAR = "\r\x1b[K"
"""Goes back to the beginning of a terminal's line, and clears it."""


def visible(text: str) -> str:
    """The text with whatever is not printable but a line's end or a tab written as in JSON, `\\u001b`."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else json.dumps(c)[1:-1] for c in text)


def one_line(text: object) -> str:
    """A message on one line: what it quotes cannot begin another."""
    return visible(str(text)).replace("\n", "\\n")


class Screen(io.TextIOBase):
    """A stream for people and programs that `visible` text goes to.

    Escapes are those of JSON, so that an object of `--json` stays what it is. What an expendable stream, such as
    stderr, does not take is dropped: a closed terminal must not cost a plan.
    """

    def __init__(self, stream: TextIO, *, expendable: bool = False) -> None:
        self._stream, self._expendable = stream, expendable
        self._live = self._unfinished = False

    def write(self, text: str) -> int:
        """Write the text, escaped, in place of a live line."""
        self._written((_CLEAR if self._live and text else "") + visible(text))
        if text:
            self._live, self._unfinished = False, not text.endswith("\n")
        return len(text)

    def write_live(self, text: str) -> None:
        """Write a terminal's live line in place of the last one, "" to clear it; text that has no end yet stays."""
        if text or not self._unfinished:
            self._written(("\n" if self._unfinished else _CLEAR) + visible(text))
            self._live, self._unfinished = bool(text), False
            self.flush()

    def flush(self) -> None:
        """Hand on what was written."""
        with self._dropping():
            self._stream.flush()

    def isatty(self) -> bool:
        """Return True if it is a terminal; a stream that was closed below is none, as libraries ask at the very end."""
        return not self._stream.closed and self._stream.isatty()

    def fileno(self) -> int:
        """The descriptor below."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """That it can be written."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding below."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """Error handler of the stream's encoding."""
        return self._stream.errors

    def _written(self, text: str) -> None:
        with self._dropping():
            self._stream.write(text)

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            if not self._expendable:
                raise
            # What is buffered would fail again at the end of the process.
            with contextlib.suppress(OSError, ValueError):
                _to_nowhere(self._stream.fileno())


@contextmanager
def screens() -> Iterator[None]:
    """stdout and stderr as screens meanwhile; what the shell closed leads nowhere."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # else the next file that is opened, a plan, would get the number and whatever is said there
            _to_nowhere(number)
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot write µ is no reason to fail
    out, err = (stream or os.fdopen(number, "w", closefd=False) for number, stream in enumerate(before, 1))
    try:
        with _own(err) as own:
            sys.stdout, sys.stderr = Screen(out), Screen(own, expendable=True)
            yield
    finally:
        sys.stdout, sys.stderr = before


@contextmanager
def _own(err: TextIO) -> Iterator[TextIO]:
    """A descriptor of our own for stderr: what libraries write to 2 may be left out, what is printed may not."""
    try:
        number = os.dup(err.fileno())
    except (OSError, ValueError):  # a stream without a descriptor
        yield err
        return
    with os.fdopen(number, "w", buffering=1, encoding=err.encoding, errors=err.errors) as own:
        yield own


def _to_nowhere(number: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, number)
    if null != number:
        os.close(null)
    os.set_inheritable(number, True)
