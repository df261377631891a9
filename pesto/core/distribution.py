"""The project's version, and how its optional packages are installed."""

from pathlib import Path

VERSION = "0.2.0"
"""Version of this distribution; pyproject.toml reads it from here, so that a checkout needs no installed metadata."""
_NAME = "pesto-placement"
"""The distribution's name on the package index: `pesto` and `solvers` are other people's there."""
_ROOT = Path(__file__).resolve().parents[2]


def install_command(*extras: str) -> str:
    """Return the pip command that adds extras of pyproject.toml to this installation, from a checkout or the index."""
    wanted = f"[{','.join(extras)}]"
    return f"pip install -e '.{wanted}'" if (_ROOT / "pyproject.toml").is_file() else f"pip install '{_NAME}{wanted}'"
