"""A stored job as the service's answer describes it."""

from typing import Any

import msgspec

from pesto.service.protocol.job_states import FINAL
from pesto.service.protocol.replies import JobReply
from pesto.service.serve.notify_address import origin_of
from pesto.service.serve.store.job_records import Job
from pesto.verbs.jobs.request import JobRequest, digests_of, kept_request


def job_reply(job: Job, place: int | None, *, whole: bool = False) -> JobReply:
    """Return a job as it is told, with its place in the queue; `whole`: and with its request."""
    asked = kept_request(job.request) if job.request else None
    came = job.outcome if job.state in FINAL else None
    there = None if job.expired else job.outcome
    return JobReply(
        id=job.id,
        number=job.number,
        kind=job.kind,
        label=job.label,
        source=job.model or _file_name(asked),
        variant=(asked.source.variant if asked is not None and asked.source is not None else None) or "",
        cluster=_cluster(asked),
        settings={} if asked is None else asked.settings.given(),
        reads={} if asked is None else digests_of(asked),
        request=_request(asked) if whole and asked is not None else None,
        priority=job.priority,
        state=job.state,
        place=place,
        stage=job.stage,
        best_s=job.best_s,
        bound_s=job.bound_s,
        gap=job.gap,
        attempt=job.attempt,
        deaths=job.deaths,
        events=job.events,
        who=job.token,
        created=job.created,
        started=job.started,
        finished=job.finished,
        seconds=job.seconds,
        exit_code=None if came is None else came.exit_code,
        error=None if came is None else came.error,
        where=None if came is None else came.where,
        remedy=None if came is None else came.remedy,
        result={} if came is None else came.result,
        files=() if there is None else there.files,
        digests={} if there is None else there.digests,
        expired=job.expired,
    )


def _request(asked: JobRequest) -> dict[str, Any]:
    """What was asked for, without the part of an address that only its receiver should know."""
    if asked.notify is not None:
        asked = msgspec.structs.replace(asked, notify=origin_of(asked.notify))
    found: dict[str, Any] = msgspec.to_builtins(asked)
    return found


def _file_name(asked: JobRequest | None) -> str:
    """The name of the file that a job is about, or the digest of one without a name."""
    about = None if asked is None else asked.source or asked.plan
    return "" if about is None else about.name or about.blob or ""


def _cluster(asked: JobRequest | None) -> str:
    if asked is None or asked.cluster is None:
        return ""
    return asked.cluster if isinstance(asked.cluster, str) else asked.cluster.name or asked.cluster.blob
