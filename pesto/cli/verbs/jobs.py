"""pesto jobs: list, show, watch and cancel jobs of a placement service, and fetch their plans."""

import time
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from pesto.cli.options import Duration, json_option, out_option, quiet_option
from pesto.cli.printed import aside, check_outputs, to_json
from pesto.cli.remote_solve import connected, server_options, watch
from pesto.core.files.disk import write_atomic
from pesto.core.quantities import duration, percent
from pesto.reporting.show.lines import align_rows, command, fact
from pesto.reporting.show.screen import one_line
from pesto.reporting.show.solve_report import VERIFIED
from pesto.service.client.calls import failed
from pesto.service.client.clients import Client
from pesto.service.protocol import FINAL, JobReply, State
from pesto.verbs.jobs.request import PAGE, PLAN, SPLIT, Kind


@click.group("jobs")
def jobs_command() -> None:
    """Jobs of a placement service (pesto serve).

    \b
    pesto solve --model nmt --server http://127.0.0.1:8780
    pesto jobs list
    pesto jobs watch ID
    """


@jobs_command.command("list")
@server_options
@click.option("--state", type=click.Choice([state.value for state in State]), help="Only those.")
@click.option("--label", metavar="TEXT", help="Only those that are called so.")
@click.option("--kind", type=click.Choice(get_args(Kind)), help="Only those.")
@click.option("--model", metavar="NAME", help="Only those of this built-in model.")
@click.option("--search", metavar="TEXT", help="Only those with this in label, model or kind, or at the id's begin.")
@click.option("--since", "age_s", type=Duration(), metavar="TIME", help="Only those of the last TIME, as 2h or 7d.")
@click.option("--most", type=click.IntRange(1), default=20, show_default=True, help="So many, the newest.")
@json_option()
def list_command(*, server: str, token: str | None, age_s: float | None, as_json: bool, **wanted: Any) -> None:
    """List jobs, the newest first."""
    given = {name: value for name, value in wanted.items() if value is not None}
    with connected(server, token) as client:
        jobs = client.jobs(**given | ({} if age_s is None else {"since": max(0.0, time.time() - age_s)}))
    if as_json:
        click.echo(to_json({"jobs": [msgspec.to_builtins(job) for job in jobs]}))
        return
    rows = [("id", "state", "kind", "of", "cluster", "best", "gap", "age", "label")]
    for job in jobs:
        seconds = max(0.0, time.time() - job.created)
        units = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
        unit, length = next(((unit, n) for unit, n in units if seconds >= 2 * n), ("s", 1))
        of, best = one_line(f"{job.source} {job.variant}".strip()), "-" if job.best_s is None else duration(job.best_s)
        rows.append((
            job.id, _state(job), job.kind, of, one_line(job.cluster), best, _gap(job), f"{seconds / length:.0f} {unit}",
            one_line(job.label),
        ))  # fmt: skip
    click.echo("\n".join(align_rows(rows, "<<<<<>>><")))


@jobs_command.command("show")
@click.argument("name", metavar="ID")
@server_options
@json_option()
def show_command(*, name: str, server: str, token: str | None, as_json: bool) -> None:
    """Show one job as it is now."""
    with connected(server, token) as client:
        job = client.job(name)
    click.echo(to_json(msgspec.to_builtins(job)) if as_json else _page(job))


@jobs_command.command("watch")
@click.argument("name", metavar="ID")
@server_options
@json_option()
@quiet_option()
def watch_command(*, name: str, server: str, token: str | None, as_json: bool, quiet: bool) -> None:
    """Watch a job to its end, print what its verb prints, and end with its exit code.

    Ctrl-C once leaves the job to itself, twice cancels it. A server that is started anew is waited for.
    """
    with connected(server, token) as client:
        ended = watch(client, name, quiet=quiet)
        job = client.job(name)
        click.echo(to_json(msgspec.to_builtins(job)) if as_json else _verb_page(client, job))
    code = ended.get("exit_code", job.exit_code)
    if code and not as_json and job.error:
        raise failed(code, job.error, job.remedy, job.where)
    raise click.exceptions.Exit(code or 0)


@jobs_command.command("cancel")
@click.argument("name", metavar="ID")
@server_options
@json_option()
def cancel_command(*, name: str, server: str, token: str | None, as_json: bool) -> None:
    """Cancel a job as Ctrl-C does: its best plan is kept."""
    with connected(server, token) as client:
        state = client.cancel(name)
    click.echo(to_json({"id": name, "state": state}) if as_json else f"{name}: {state}")


@jobs_command.command("delete")
@click.argument("names", metavar="ID...", nargs=-1, required=True)
@click.option("--purge", is_flag=True, help="Delete jobs that have ended, with their events and files.")
@server_options
@json_option()
def delete_command(*, names: tuple[str, ...], purge: bool, server: str, token: str | None, as_json: bool) -> None:
    """Cancel jobs, or with --purge delete those that have ended; one after the other, up to one that is refused."""
    ended: list[dict[str, str]] = []
    with connected(server, token) as client:
        for name in dict.fromkeys(names):
            state = client.delete(name, purge=purge)
            ended.append({"id": name, "state": state})
            if not as_json:
                hint = "" if purge or state not in FINAL else f"; to delete it: pesto jobs delete {name} --purge"
                click.echo(f"{name}: {'deleted' if purge else state}{hint}")
    if as_json:
        click.echo(to_json({"jobs": ended, "purged": purge}))


@jobs_command.command("plan")
@click.argument("name", metavar="ID")
@server_options
@out_option("plan.json", "Plan file.")
@json_option()
def plan_command(*, name: str, server: str, token: str | None, out: Path, as_json: bool) -> None:
    """Fetch the plan or split of a job, also the best so far of one that was interrupted."""
    check_outputs([out], [], as_json=as_json)
    with connected(server, token) as client:
        cut = SPLIT in client.job(name).files
        data = client.file(name, SPLIT) if cut else client.plan(name)
    write_atomic(out, data)
    if as_json:
        click.echo(to_json({"id": name, "plan": str(out), "bytes": len(data)}))
    else:
        following = f"next: pesto check {out}, with the files of graph and cluster that it was made of, if any"
        aside(f"the {'split' if cut else 'plan'} of job {name} is in {out}; {following}")


def _verb_page(client: Client, job: JobReply) -> str:
    """Return the page that the job's verb has printed, but for where it wrote a plan or a split; the service has it."""
    if PAGE not in job.files:
        return _page(job)
    lines = client.file(job.id, PAGE).decode().splitlines()
    if job.kind == "compare":
        begins, instead = fact("plans", ""), fact("plans", "the service has them")
    elif PLAN in job.files:
        begins, instead = VERIFIED, fact(VERIFIED, "by the independent checker; the service has the plan")
    else:
        begins, instead = fact("split", ""), fact("split", "the service has it")
    starts = [k for k, line in enumerate(lines) if line.startswith(begins)]
    if not starts:
        return "\n".join(lines)
    # The last line that begins so is replaced, and those under it up to an empty one.
    rest = next((k for k in range(starts[-1], len(lines)) if not lines[k]), len(lines))
    after = command("next", ["pesto", "jobs", "plan", job.id])
    return "\n".join([*lines[: starts[-1]], instead, after, *lines[rest:]])


def _page(job: JobReply) -> str:
    """Return the fields of a job that have a value, for people."""
    bound = "" if job.bound_s is None else f", bound {duration(job.bound_s)}, gap {_gap(job)}"
    facts = {
        "job": f"{job.id}, {job.kind}",
        "label": one_line(job.label),
        "of": one_line(f"{job.source} {job.variant}".strip()),
        "cluster": one_line(job.cluster),
        "settings": ", ".join(f"{name} {value}" for name, value in job.settings.items()),
        "files read": ", ".join(f"{name} {digest[:12]}" for name, digest in job.reads.items()),
        "state": _state(job) + (f", {job.stage}" if job.stage else ""),
        "best": "" if job.best_s is None else f"{duration(job.best_s)}{bound}",
        "attempt": f"{job.attempt}, {job.seconds:.1f} s of workers",
        "error": one_line(job.error or ""),
        "remedy": one_line(job.remedy or ""),
        "files": ", ".join(job.files) if not job.expired else "removed to make room",
    }
    return "\n".join(fact(name, text) for name, text in facts.items() if text)


def _gap(job: JobReply) -> str:
    """Format the gap of a job's best plan."""
    return "-" if job.gap is None else percent(job.gap)


def _state(job: JobReply) -> str:
    """Format the state of a job, with its place in the queue."""
    return f"{job.state.value}, place {job.place}" if job.place is not None else job.state.value
