"""The web page: one file that asks the routes under /v1 for everything that it shows."""

from functools import cache
from typing import NamedTuple

from litestar import MediaType, Response, Router, get

from pesto.show.report.one_file import asset, policy_hash, script_of, with_marks

SCRIPTS = ("sha256.js", "service.js", "submit.js", "queue.js", "watch.js", "begin.js")
"""The page's script, in this order, after the words of a plan's page."""


class _Page(NamedTuple):
    text: bytes
    policy: str


@cache
def _page() -> _Page:
    style = asset("report.css") + _own("page.css")
    script = script_of([asset("words.js"), *map(_own, SCRIPTS)])
    policy = (
        f"default-src 'none'; script-src '{policy_hash(script)}'; style-src '{policy_hash(style)}'; "
        "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return _Page(with_marks(_own("page.html"), {"style": style, "script": script}).encode(), policy)


def _own(name: str) -> str:
    return asset(name, "pesto.serve.http")


@get("/", sync_to_thread=False, media_type=MediaType.HTML, include_in_schema=False)
def page() -> Response[bytes]:
    """For everybody: what it shows is asked for with a token where there are any."""
    found = _page()
    headers = {
        "Content-Security-Policy": found.policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return Response(found.text, headers=headers)


def page_routes() -> Router:
    """Beside /v1."""
    return Router("/", route_handlers=[page])
