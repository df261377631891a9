"""pesto jobs: what a placement service has to do, does and has done."""

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
        found = client.jobs(**given | ({} if age_s is None else {"since": max(0.0, time.time() - age_s)}))
    if as_json:
        click.echo(to_json({"jobs": [_object(job) for job in found]}))
        return
    head = ("id", "state", "kind", "of", "cluster", "best", "gap", "age", "label")
    click.echo("\n".join(align_rows([head, *map(_row, found)], "<<<<<>>><")))


@jobs_command.command("show")
@click.argument("name", metavar="ID")
@server_options
@json_option()
def show_command(*, name: str, server: str, token: str | None, as_json: bool) -> None:
    """Show one job as it is now."""
    with connected(server, token) as client:
        found = client.job(name)
    click.echo(to_json(_object(found)) if as_json else _page(found))


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
        found = client.job(name)
        if as_json:
            click.echo(to_json(_object(found)))
        else:
            click.echo(_told(client, found))
    code = ended.get("exit_code", found.exit_code)
    if code and not as_json and found.error:
        raise failed(code, found.error, found.remedy, found.where)
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
        aside(f"the {'split' if cut else 'plan'} of job {name} is in {out}; {_next(out)}")


def _next(out: Path) -> str:
    return f"next: pesto check {out}, with the files of graph and cluster that it was made of, if any"


def _told(client: Client, job: JobReply) -> str:
    """What the job's verb has printed, but for where it wrote a plan or a split, which the service has."""
    if PAGE not in job.files:
        return _page(job)
    lines = client.file(job.id, PAGE).decode().splitlines()
    after = command("next", ["pesto", "jobs", "plan", job.id])
    if job.kind == "compare":
        return _in_place(lines, fact("plans", ""), [fact("plans", "the service has them"), after])
    if PLAN in job.files:
        return _in_place(
            lines, VERIFIED, [fact(VERIFIED, "by the independent checker; the service has the plan"), after]
        )
    return _in_place(lines, fact("split", ""), [fact("split", "the service has it"), after])


def _in_place(lines: list[str], begins: str, after: list[str]) -> str:
    """A page with other lines in place of the last that begins so and of those under it, up to an empty one."""
    found = [k for k, line in enumerate(lines) if line.startswith(begins)]
    if not found:
        return "\n".join(lines)
    rest = next((k for k in range(found[-1], len(lines)) if not lines[k]), len(lines))
    return "\n".join([*lines[: found[-1]], *after, *lines[rest:]])


def _object(job: JobReply) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(job)
    return found


def _best(job: JobReply) -> str:
    return "-" if job.best_s is None else duration(job.best_s)


def _gap(job: JobReply) -> str:
    return "-" if job.gap is None else percent(job.gap)


def _state(job: JobReply) -> str:
    return f"{job.state.value}, place {job.place}" if job.place is not None else job.state.value


def _row(job: JobReply) -> tuple[str, ...]:
    what = (job.kind, one_line(_source(job)), one_line(job.cluster))
    return job.id, _state(job), *what, _best(job), _gap(job), _age(job), one_line(job.label)


def _source(job: JobReply) -> str:
    return f"{job.source} {job.variant}".strip()


def _age(job: JobReply) -> str:
    """Since it was submitted."""
    seconds = max(0.0, time.time() - job.created)
    for unit, much in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * much:
            return f"{seconds / much:.0f} {unit}"
    return f"{seconds:.0f} s"


def _page(job: JobReply) -> str:
    """All of a job that says something."""
    bound = "" if job.bound_s is None else f", bound {duration(job.bound_s)}, gap {_gap(job)}"
    facts = {
        "job": f"{job.id}, {job.kind}",
        "label": one_line(job.label),
        "of": one_line(_source(job)),
        "cluster": one_line(job.cluster),
        "settings": ", ".join(f"{name} {value}" for name, value in job.settings.items()),
        "files read": ", ".join(f"{name} {digest[:12]}" for name, digest in job.reads.items()),
        "state": _state(job) + (f", {job.stage}" if job.stage else ""),
        "best": "" if job.best_s is None else f"{_best(job)}{bound}",
        "attempt": f"{job.attempt}, {job.seconds:.1f} s of workers",
        "error": one_line(job.error or ""),
        "remedy": one_line(job.remedy or ""),
        "files": ", ".join(job.files) if not job.expired else "removed to make room",
    }
    return "\n".join(fact(name, text) for name, text in facts.items() if text)
