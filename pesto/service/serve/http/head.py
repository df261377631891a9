"""HEAD, wherever there is GET: the same status and headers without a body. The framework gives it to no route."""

from typing import Any

from litestar.types import ASGIApp, Message, Receive, ReceiveMessage, Scope, Send

from pesto.service.serve.http.tracing import TEMPLATE


def with_head(app: ASGIApp) -> ASGIApp:
    """The application, which is asked with GET where HEAD comes; OPTIONS names both."""

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        method = scope.get("method")
        if method == "HEAD":
            await _bare(app, scope, receive, send)
        elif method == "OPTIONS":
            await app(scope, receive, _naming(send))
        else:
            await app(scope, receive, send)

    return answering


def beside_get(allowed: str) -> str:
    """The methods of an `Allow`, with HEAD among them where there is GET."""
    named = set(allowed.split(", "))
    return ", ".join(sorted(named | {"HEAD"} if "GET" in named else named))


async def _bare(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """An answer that ends with its headers; a stream hears then that nobody listens."""
    begun = False

    async def heard() -> ReceiveMessage:
        return {"type": "http.disconnect"} if begun else await receive()

    async def told(message: Message) -> None:
        nonlocal begun
        if message["type"] == "http.response.start":
            begun = True
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    asked: Any = {**scope, "method": "GET"}
    await app(asked, heard, told)
    scope[TEMPLATE] = asked.get(TEMPLATE, "")  # type: ignore[literal-required]


def _naming(send: Send) -> Send:
    async def named(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [
                (name, beside_get(value.decode()).encode() if name.lower() == b"allow" else value)
                for name, value in message["headers"]
            ]
            message = {**message, "headers": headers}
        await send(message)

    return named
