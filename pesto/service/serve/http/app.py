"""The application: every route, its errors, and the document that describes both."""

import sqlite3

from litestar import Litestar, Router
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ASGIApp

from pesto.core.distribution import VERSION
from pesto.core.errors import PestoError
from pesto.service.serve.http.blob_routes import blob_routes
from pesto.service.serve.http.caller import SERVICE, caller, refuse_doubled_headers
from pesto.service.serve.http.document import Document
from pesto.service.serve.http.event_routes import event_routes
from pesto.service.serve.http.file_routes import file_routes
from pesto.service.serve.http.head import with_head
from pesto.service.serve.http.job_routes import job_routes
from pesto.service.serve.http.other_routes import catalogue_routes, health_routes
from pesto.service.serve.http.page_routes import page_routes
from pesto.service.serve.http.refused import of_bug, of_http, refused, too_deep, undecodable, unreadable
from pesto.service.serve.http.shutdown import answering_at_the_end
from pesto.service.serve.http.tracing import traced
from pesto.service.serve.service import Service

BODY = 1 << 20
"""Bytes of a request's JSON."""


def application(service: Service) -> ASGIApp:
    """The routes of a service."""
    v1 = Router(
        "/v1",
        route_handlers=[job_routes(), event_routes(), file_routes(), blob_routes(), catalogue_routes()],
        dependencies={"caller": Provide(caller, sync_to_thread=False)},
        security=[{}, {"token": []}],
    )
    document = OpenAPIConfig(
        title="Pesto's placement service",
        version=VERSION,
        path="/v1/openapi.json",
        render_plugins=[Document(path="/")],
        components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
    )
    app = Litestar(
        [v1, health_routes(), page_routes()],
        openapi_config=document,
        exception_handlers={
            PestoError: refused,
            HTTPException: of_http,
            RecursionError: too_deep,
            UnicodeDecodeError: undecodable,
            sqlite3.Error: unreadable,
            Exception: of_bug,
        },
        before_request=refuse_doubled_headers,
        request_max_body_size=BODY,
        logging_config=None,
        on_startup=[service.watchers.attach],
    )
    app.state[SERVICE] = service
    whole = answering_at_the_end(with_head(app), service.watchers)
    return traced(whole, service.access_log, service.request_times)
