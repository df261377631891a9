"""A page as one file: its style and script within, and a policy that lets nothing else run."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

_MARK = re.compile(r"@([a-z]+)@")


@cache
def asset(name: str, package: str = "pesto.reporting.show.report") -> str:
    """The text of a file in the folder `assets` of a package."""
    return files(package).joinpath("assets", name).read_text(encoding="utf-8")


def join_scripts(parts: Sequence[str]) -> str:
    """Parts of a script as one, whose names are nobody else's."""
    return "(() => {\n" + "".join(parts) + "})();\n"


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """The template with each @name@ replaced."""
    return _MARK.sub(lambda mark: values[mark[1]], template)


def policy_hash(text: str) -> str:
    """How a page's policy names a style or a script that may be used."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
