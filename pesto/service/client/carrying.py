"""httpx as clients of a service use it: how it is set up, and its errors as replies."""

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pesto.core.distribution import install_command
from pesto.core.errors import SolverError
from pesto.service.client.asking import Ask, Reply
from pesto.service.client.link import headers, own_machine

if TYPE_CHECKING:
    import httpx
READ_S = 60.0
"""Seconds of silence after which a connection is taken for dead; the service says something every 15."""
_SEND_S = 20.0


def library() -> ModuleType:
    """The package httpx; SolverError with how to install it."""
    try:
        import httpx
    except ImportError as error:
        raise SolverError.build(
            f"a client of the service needs {error.name}", remedy=f"{install_command('client')}"
        ) from error
    return httpx


def setup(url: str, token: str | None) -> dict[str, Any]:
    """The arguments of httpx's clients."""
    return {
        "base_url": url,
        "headers": headers(token),
        "timeout": library().Timeout(_SEND_S, read=READ_S),
        "trust_env": not own_machine(url),
        "verify": url.startswith("https:"),  # without it no certificates are loaded, which takes time
    }


def reply_of(answer: "httpx.Response") -> Reply:
    """An answer whose body is read."""
    return Reply(answer.status_code, answer.headers.get("retry-after"), answer.content)


def unreached(error: "httpx.TransportError") -> Reply:
    """No answer."""
    return Reply(why=str(error) or type(error).__name__)


def body_headers(ask: Ask) -> dict[str, str]:
    """The headers of a request, with the length of a file that it sends."""
    length = {"Content-Length": str(ask.body.stat().st_size)} if isinstance(ask.body, Path) else {}
    return {**ask.headers, **length}
