"""A job done from begin to end in the process that calls it: whatever happens, it ends in one `Done`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pesto.core.errors import Exit, describe_error
from pesto.core.files.confinement import confine_to
from pesto.core.files.disk import make_folder
from pesto.planning.solving.interrupt import hold, received
from pesto.reporting.show.screen import one_line
from pesto.verbs.jobs.checks import checked
from pesto.verbs.jobs.compare_job import compare_job
from pesto.verbs.jobs.given_files import Given, given
from pesto.verbs.jobs.job_events import Done
from pesto.verbs.jobs.plan_jobs import check_job, report_job
from pesto.verbs.jobs.request import JobRequest, Kind
from pesto.verbs.jobs.solve_job import solve_job
from pesto.verbs.jobs.split_job import split_job
from pesto.verbs.jobs.sweep_job import sweep_job
from pesto.verbs.jobs.telling import Tell, Telling, logged
from pesto.verbs.jobs.work import Work

_DO: dict[Kind, Callable[[Work], dict[str, Any]]] = {
    "solve": solve_job, "compare": compare_job, "sweep": sweep_job, "split": split_job, "check": check_job,
    "report": report_job,
}  # fmt: skip


def run(request: JobRequest, blobs: Path, out: Path, tell: Tell) -> Done:
    """Do what the verb of the request's kind does; its results go into the folder `out`, each whole or not at all.

    blobs: where uploaded files lie under their SHA-256. tell: hears of each event, from several threads, but not of the
    `Done` that is returned. Signals are as `pesto.planning.solving.interrupt` has them once it is installed: an
    interruption ends the search, and what was found is written.
    """
    written: list[str] = []
    try:
        checked(request)
        make_folder(out)
        with given(request, blobs, out) as files, confine_to(files.folder):
            try:
                result = _done(request, files, Telling(tell, files.named), out, written)
            except (Exception, KeyboardInterrupt) as error:
                return _failed(error, written, files.named)
            finally:
                hold()
    except (Exception, KeyboardInterrupt) as error:
        return _failed(error, written, str)
    return Done(exit_code=_code(result), result=result, files=tuple(written))


def _done(request: JobRequest, files: Given, telling: Telling, out: Path, written: list[str]) -> dict[str, Any]:
    """The work itself; what it wrote is in `written`, also where it fails."""
    with logged(telling):
        return _DO[request.kind](Work(request=request, given=files, folder=out, telling=telling, written=written))


def _failed(error: BaseException, written: list[str], named: Callable[[str], str]) -> Done:
    """Return the end of a job that failed, with the words of the command line and the names of its sender."""
    failure = describe_error(error, received())
    what, where, remedy = (one_line(named(text)) for text in (failure.error, failure.where, failure.remedy))
    return Done(
        exit_code=failure.exit_code, error=what, where=where or None, remedy=remedy or None, files=tuple(written)
    )  # fmt: skip


def _code(result: dict[str, Any]) -> int:
    """0, or the code of the interruption that ended the search."""
    interrupted = bool(result.get("interrupted"))
    return received() or (Exit.INTERRUPTED if interrupted else Exit.OK)
