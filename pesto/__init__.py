"""Optimal placement and schedule of a training step on several GPUs. The Python API is `pesto.api`, loaded on use."""

import importlib
from typing import Any

_API = frozenset((
    "apply", "check", "load_graph", "load_plan", "logical_cpus", "place", "profile", "record", "rewrite", "save_plan",
    "solve",
))  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load `pesto.api` when one of its functions is first asked for, so that `import pesto` stays quick."""
    if name in _API:
        return getattr(importlib.import_module("pesto.api"), name)
    raise AttributeError(f"module 'pesto' has no attribute {name!r}")
