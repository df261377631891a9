"""The web page: one file that asks the routes under /v1 for everything that it shows."""

from functools import cache
from typing import NamedTuple

from litestar import MediaType, Response, Router, get

from pesto.reporting.show.html_report import asset, fill_template, join_scripts, policy_hash

SCRIPTS = ("sha256.js", "in_place.js", "service.js", "submit.js", "queue.js", "watch.js", "begin.js")
"""The page's script, in this order, after the words of a plan's page."""


FRAME = """<!DOCTYPE html><meta charset="utf-8"><title>A report</title><script>
addEventListener("message", (told) => {
  if (told.source !== parent) return;
  document.open();
  document.write(told.data);
  document.close();
}, {once: true});
</script>"""
"""Shows the page that it is told, as a stranger's: of no origin, with nothing from anywhere, and by its own policy."""
_FRAME_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)


class _Page(NamedTuple):
    text: bytes
    policy: str


@cache
def _page() -> _Page:
    style = asset("report.css") + _own("page.css")
    script = join_scripts([asset("words.js"), *map(_own, SCRIPTS)])
    policy = (
        f"default-src 'none'; script-src '{policy_hash(script)}'; style-src '{policy_hash(style)}'; "
        "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return _Page(fill_template(_own("page.html"), {"style": style, "script": script}).encode(), policy)


def _own(name: str) -> str:
    return asset(name, "pesto.service.serve.http")


@get("/", sync_to_thread=False, media_type=MediaType.HTML, include_in_schema=False)
def page() -> Response[bytes]:
    """For everybody: what it shows is asked for with a token where there are any."""
    found = _page()
    return Response(found.text, headers=_headers(found.policy))


@get("/frame", sync_to_thread=False, media_type=MediaType.HTML, include_in_schema=False)
def frame() -> Response[bytes]:
    """For a report within the page, which asks for it with its token."""
    return Response(FRAME.encode(), headers=_headers(_FRAME_POLICY))


def _headers(policy: str) -> dict[str, str]:
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }


def page_routes() -> Router:
    """Beside /v1."""
    return Router("/", route_handlers=[page, frame])
