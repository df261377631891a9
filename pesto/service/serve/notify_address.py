"""Addresses that a request names to be told of its job's end."""

from urllib.parse import urlsplit

from pesto.service.serve.refusals import RefusedError


def check_url(url: str, *, enabled: bool) -> None:
    """Check an address that a request names. RefusedError (422) for one that cannot be, and where none is told."""
    if not enabled:
        raise RefusedError(422, "this service tells nobody of a job's end - leave out notify", code="webhooks_off")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isascii() or not url.isprintable() or " " in url or parts.username is not None:
        raise RefusedError(422, "notify is no address of a receiver - write https://HOST/PATH, without a user in it")


def origin_of(url: str) -> str:
    """Return an address without what only its receiver should know."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/…"
