"""The OpenAPI document of the routes, with what a request may have by its kind."""

from functools import cache
from typing import Any

from litestar import Request
from litestar.openapi.plugins import JsonRenderPlugin

from pesto.service.serve.error_codes import CODES
from pesto.service.serve.http.file_routes import OTHER, TYPES
from pesto.verbs.jobs.request_schema import request_schema

_PARTS = "#/components/schemas/"


class Document(JsonRenderPlugin):
    """The document as JSON."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """The framework's own, but for the body of a submission, and for a file that may be of any type."""
        body, parts = _requests()
        paths, components = openapi_schema["paths"], openapi_schema["components"]
        submit = paths["/v1/jobs"]["post"]
        submit["requestBody"]["content"]["application/json"]["schema"] = body
        kinds: dict[str, Any] = {kind: {} for kind in (*sorted(TYPES.values()), OTHER)}
        paths["/v1/jobs/{name}/files/{file}"]["get"]["responses"]["200"]["content"] = kinds
        schemas = {name: part for name, part in components["schemas"].items() if name not in _WHOLE} | parts
        schemas["Problem"]["properties"]["code"] |= {"enum": list(CODES)}
        return self.render_json(request, openapi_schema | {"components": components | {"schemas": schemas}})


_WHOLE = ("JobRequest", "JobSettings")
"""Schemas of a request of any kind."""


@cache
def _requests() -> tuple[dict[str, Any], dict[str, Any]]:
    return request_schema(_PARTS + "{name}")
