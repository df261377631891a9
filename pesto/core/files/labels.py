"""Names and labels in files: what is not empty, not too long, and cannot act on a terminal."""

import re
from collections.abc import Callable, Sequence

from pesto.core.errors import InputError
from pesto.core.files.json import shown

MAX_NAME_BYTES = 4096
_DIGITS = 12
# Line breaks and other control characters, overrides of the writing direction, and halves of characters.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def check_labels(labels: Sequence[str], where: Callable[[int], str], empty: bool = False) -> None:
    """InputError for a label that is empty, holds control characters or is too long; `where` names the k-th."""
    fine = empty or all(labels)
    if fine and max(map(len, labels), default=0) <= MAX_NAME_BYTES // 4 and not _CONTROL.search("".join(labels)):
        return
    for k, label in enumerate(labels):
        if not label and not empty:
            raise InputError.build("the name is empty", where=where(k), remedy="give it one")
        if _CONTROL.search(label):
            raise InputError.build(f"'{shown(label)}' holds a control character", where=where(k), remedy="take it out")
        if len(label.encode()) > MAX_NAME_BYTES:
            raise InputError.build(
                f"'{shown(label)}' is longer than {MAX_NAME_BYTES} bytes", where=where(k), remedy="shorten it"
            )


def short_fingerprints(one: str, other: str) -> tuple[str, str]:
    """Two fingerprints in short for people: twelve digits of each, and all where those are equal."""
    long = None if one[:_DIGITS] == other[:_DIGITS] else _DIGITS
    return one[:long], other[:long]
