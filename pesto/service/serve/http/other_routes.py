"""Routes beside jobs and files: the catalogue, health, metrics for Prometheus and the web page."""

import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from litestar import MediaType, Response, Router, get
from litestar.openapi.datastructures import ResponseSpec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from pesto.reporting.show.facts import clusters_object, models_object, solvers_object
from pesto.reporting.show.html_report import asset, fill_template, join_scripts, policy_hash
from pesto.service.protocol import Health
from pesto.service.serve.http.caller import SERVICE, Asking, Who
from pesto.service.serve.http.refused import refusals
from pesto.service.serve.service import Service
from pesto.service.serve.store.job_records import Sums
from pesto.service.serve.store.waiting import Waiting

OTHER = "other"
"""The label of models that are not built in."""


async def measured(service: Service) -> tuple[bytes, str]:
    """Return the text of all counts, and its media type. LaterError while the database does not answer."""
    waiting = await service.store.reader.waiting()
    counted = await service.store.reader.ask(lambda store: (store.oldest_waiting(), store.blob_bytes(), store.sums()))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counts(service, waiting, *counted))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Counts(Collector):
    def __init__(
        self, service: Service, waiting: Waiting, oldest: float | None, blob_bytes: int, sums: list[Sums]
    ) -> None:
        self._service, self._waiting, self._oldest, self._blob_bytes = service, waiting, oldest, blob_bytes
        self._sums = sums

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        service, waiting, scheduler = self._service, self._waiting, self._service.scheduler
        waited = 0.0 if self._oldest is None else max(0.0, time.time() - self._oldest)
        yield GaugeMetricFamily("pesto_queue_jobs", "Jobs that wait.", value=len(waiting))
        yield GaugeMetricFamily("pesto_queue_oldest_seconds", "Age of the job that waits longest.", value=waited)
        yield GaugeMetricFamily("pesto_running_jobs", "Jobs that run.", value=sum(waiting.running.values()))
        yield GaugeMetricFamily("pesto_workers", "Jobs that may run at a time.", value=scheduler.slots)
        yield GaugeMetricFamily("pesto_scheduler_alive", "Whether jobs are begun.", value=int(scheduler.alive))
        yield GaugeMetricFamily("pesto_blobs_bytes", "Bytes of uploaded files.", value=self._blob_bytes)
        yield GaugeMetricFamily("pesto_watchers", "Streams of events that are open.", value=service.watchers.count)
        yield GaugeMetricFamily(
            "pesto_acts_waiting", "Changes that wait for the disk.", value=service.store.writer.waiting
        )
        labels = ("kind", "model", "state")
        ended = CounterMetricFamily("pesto_jobs_ended", "Jobs that have ended.", labels=labels)
        seconds = CounterMetricFamily("pesto_job_seconds", "Seconds of workers at jobs that have ended.", labels=labels)
        gaps = CounterMetricFamily("pesto_gap_sum", "Gaps of ended jobs that have one, added up.", labels=labels)
        with_gap = CounterMetricFamily("pesto_gap_count", "Ended jobs that have a gap.", labels=labels)
        for row in self._sums:
            names = (row.kind, row.model or OTHER, row.state)
            ended.add_metric(names, row.jobs)
            seconds.add_metric(names, row.seconds)
            gaps.add_metric(names, row.gap)
            with_gap.add_metric(names, row.gaps)
        yield from (ended, seconds, gaps, with_gap)
        # Since this server's start, of what it did itself.
        wait = "Seconds of jobs from their submission to their first worker."
        run = "Seconds of workers at attempts of jobs."
        for name, text, values in (
            ("pesto_job_wait_seconds", wait, scheduler.waited), ("pesto_job_run_seconds", run, scheduler.ran)
        ):  # fmt: skip
            yield HistogramMetricFamily(name, text, buckets=values.cumulated(), sum_value=values.sum)
        text = "Seconds of requests; of streams, of their whole length."
        times = HistogramMetricFamily("pesto_http_request_seconds", text, labels=("method", "route", "status"))
        for names, values in list(service.request_times.by_labels.items()):
            times.add_metric(names, values.cumulated(), values.sum)
        yield times


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
    content = _page()
    return Response(content.text, headers=_headers(content.policy))


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
