"""What a user names as the graph to plan."""

import re
from dataclasses import dataclass
from pathlib import Path

_MODEL = re.compile(r"^model ([\w-]+) ([\w-]+)(?: batch (\d+))?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One graph; exactly one of model, file, saved_model and function is given."""

    model: str | None = None
    variant: str | None = None
    file: Path | None = None
    fetch: tuple[str, ...] = ()
    saved_model: Path | None = None
    function: str | None = None
    batch: int | None = None


def model_label(model: str, variant: str, batch: int | None) -> str:
    """How a graph of a built-in model calls its source; `named_by` reads it back."""
    return f"model {model} {variant}" + (f" batch {batch}" if batch else "")


def named_by(label: str) -> Source | None:
    """The built-in model that a label names, or None when the graph came from elsewhere."""
    found = _MODEL.match(label)
    if not found:
        return None
    return Source(model=found.group(1), variant=found.group(2), batch=int(found.group(3)) if found.group(3) else None)
