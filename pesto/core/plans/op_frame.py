"""A plan as a table of another library, one row an op, where one is installed."""

import importlib
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from pesto.core.errors import UsageError

LIBRARIES = ("pandas", "polars")
"""What makes frames, the first that is installed."""


def op_frame(columns: Mapping[str, list[Any]]) -> Any:
    """A DataFrame of these columns; UsageError where neither library is installed."""
    for name in LIBRARIES:
        if find_spec(name) is not None:
            return importlib.import_module(name).DataFrame(dict(columns))
    raise UsageError("a frame needs pandas or polars - pip install pandas, or pip install polars")
