"""Counts of the service for Prometheus, taken when they are asked for."""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from pesto.service.serve.service import Service
from pesto.service.serve.store.job_records import Sums
from pesto.service.serve.store.readings import Readings
from pesto.service.serve.store.waiting import Waiting

OTHER = "other"
"""The label of models that are not built in."""


async def measured(service: Service) -> tuple[bytes, str]:
    """The text of all counts, and its media type. LaterError while the database does not answer."""
    waiting = await service.store.reader.waiting()
    counted = await service.store.reader.asked(_counted)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counts(service, waiting, counted))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Counted(NamedTuple):
    """Counts of the store."""

    oldest: float | None
    blob_bytes: int
    sums: list[Sums]


def _counted(store: Readings) -> _Counted:
    return _Counted(store.oldest_waiting(), store.blob_bytes(), store.sums())


class _Counts(Collector):
    def __init__(self, service: Service, waiting: Waiting, counted: _Counted) -> None:
        self._service, self._waiting, self._counted = service, waiting, counted

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        service, waiting, oldest = self._service, self._waiting, self._counted.oldest
        waited = 0.0 if oldest is None else max(0.0, time.time() - oldest)
        yield _gauge("pesto_queue_jobs", "Jobs that wait.", len(waiting))
        yield _gauge("pesto_queue_oldest_seconds", "Age of the job that waits longest.", waited)
        yield _gauge("pesto_running_jobs", "Jobs that run.", sum(waiting.running.values()))
        yield _gauge("pesto_workers", "Jobs that may run at a time.", service.scheduler.slots)
        yield _gauge("pesto_scheduler_alive", "Whether jobs are begun.", int(service.scheduler.alive))
        yield _gauge("pesto_blobs_bytes", "Bytes of uploaded files.", self._counted.blob_bytes)
        yield _gauge("pesto_watchers", "Streams of events that are open.", service.watchers.count)
        yield _gauge("pesto_acts_waiting", "Changes that wait for the disk.", service.store.writer.waiting)
        labels = ("kind", "model", "state")
        ended = CounterMetricFamily("pesto_jobs_ended", "Jobs that have ended.", labels=labels)
        seconds = CounterMetricFamily("pesto_job_seconds", "Seconds of workers at jobs that have ended.", labels=labels)
        gaps = CounterMetricFamily("pesto_gap_sum", "Gaps of ended jobs that have one, added up.", labels=labels)
        with_gap = CounterMetricFamily("pesto_gap_count", "Ended jobs that have a gap.", labels=labels)
        for row in self._counted.sums:
            names = (row.kind, row.model or OTHER, row.state)
            ended.add_metric(names, row.jobs)
            seconds.add_metric(names, row.seconds)
            gaps.add_metric(names, row.gap)
            with_gap.add_metric(names, row.gaps)
        yield from (ended, seconds, gaps, with_gap)
        yield from self._histograms()

    def _histograms(self) -> Iterator[Metric]:
        """Since this server's start, of what it did itself."""
        scheduler = self._service.scheduler
        for name, text, values in (
            (
                "pesto_job_wait_seconds",
                "Seconds of jobs from their submission to their first worker.",
                scheduler.waited,
            ),
            ("pesto_job_run_seconds", "Seconds of workers at attempts of jobs.", scheduler.ran),
        ):
            yield HistogramMetricFamily(name, text, buckets=values.cumulated(), sum_value=values.sum)
        labels = ("method", "route", "status")
        text = "Seconds of requests; of streams, of their whole length."
        times = HistogramMetricFamily("pesto_http_request_seconds", text, labels=labels)
        for names, values in list(self._service.request_times.by_labels.items()):
            times.add_metric(names, values.cumulated(), values.sum)
        yield times


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
