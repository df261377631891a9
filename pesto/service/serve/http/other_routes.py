"""What there is to choose from, and whether the service works."""

from typing import Any

from litestar import MediaType, Response, Router, get
from litestar.openapi.datastructures import ResponseSpec

from pesto.reporting.show.facts import clusters_object, models_object, solvers_object
from pesto.service.protocol.replies import Health
from pesto.service.serve.http.caller import SERVICE, Asking, Who
from pesto.service.serve.http.metrics import measured
from pesto.service.serve.http.refused import refusals


@get("/models", responses=refusals(), sync_to_thread=True, summary="Built-in models")
def models(caller: Who) -> dict[str, Any]:  # noqa: ARG001 - who asks must be known
    """The object of pesto models --json."""
    return models_object()


@get("/clusters", responses=refusals(), sync_to_thread=True, summary="Cluster presets")
def clusters(caller: Who) -> dict[str, Any]:  # noqa: ARG001
    """The object of pesto clusters --json."""
    return clusters_object()


@get("/solvers", responses=refusals(), sync_to_thread=True, summary="Exact solvers and heuristics")
def solvers(caller: Who) -> dict[str, Any]:  # noqa: ARG001
    """The object of pesto solvers --json."""
    return solvers_object()


@get("/healthz", sync_to_thread=False, summary="Whether the server answers")
def healthz() -> Health:
    """200 as long as it does."""
    return Health(status="ok")


@get(
    "/readyz",
    sync_to_thread=False,
    summary="Whether jobs are taken and run",
    responses={503: ResponseSpec(Health, description="not now", generate_examples=False)},
)
def readyz(request: Asking) -> Response[Health]:
    """503 with the reason while the service begins or ends, its database is away, or its disk takes no jobs."""
    why = request.app.state[SERVICE].trouble()
    return Response(Health(status="not ready" if why else "ready", why=why or None), status_code=503 if why else 200)


@get("/metrics", media_type=MediaType.TEXT, summary="Counts for Prometheus")
async def metrics(request: Asking) -> Response[bytes]:
    """Prometheus's text format."""
    text, kind = await measured(request.app.state[SERVICE])
    return Response(text, media_type=kind)


def catalogue_routes() -> Router:
    """Under /v1."""
    return Router("/", route_handlers=[models, clusters, solvers], tags=["choices"])


def health_routes() -> Router:
    """Beside /v1, and for everybody: they tell counts alone."""
    return Router("/", route_handlers=[healthz, readyz, metrics], tags=["health"])
