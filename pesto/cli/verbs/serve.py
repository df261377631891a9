"""pesto serve: the placement service, and the tokens of those who may use it."""

import re
import signal
import threading
import time
from collections import ChainMap
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from pesto.cli.options import Duration, json_option, quiet_option
from pesto.cli.printed import aside, to_json
from pesto.core.errors import UsageError
from pesto.core.files.disk import make_folder
from pesto.core.files.json import quoted
from pesto.core.quantities import plural, size
from pesto.reporting.show.lines import align_rows
from pesto.reporting.show.screen import one_line
from pesto.service.serve import tokens
from pesto.service.serve.backup import Saved, back_up, restore
from pesto.service.serve.serve_config import EXECUTORS, KeepDays, configured
from pesto.service.serve.webhooks import webhook_key

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", re.IGNORECASE)
_SIZES = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_MOST_BYTES = 2.0**60


class Size(click.ParamType[int]):
    """Bytes, as 500M or 5G: powers of 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes; a click usage error for anything else."""
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(value)
        if not found:
            self.fail(f"{value!r} is no size - write 500M or 5G", param, ctx)
        given = float(found.group(1)) * 2.0 ** _SIZES[found.group(2).upper()]
        if given > _MOST_BYTES:
            self.fail(f"{value!r} is more than any disk has - write 500M or 5G", param, ctx)
        return int(given)


_STATES = tuple(field.name for field in fields(KeepDays))


class Keep(click.ParamType[dict[str, float]]):
    """Days by state, as 30d for all or failed=7d for one."""

    name = "keep"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, float]:
        """Days by state; a click usage error for anything else."""
        if isinstance(value, dict):
            return value
        state, _, time_text = value.rpartition("=")
        if state and state not in _STATES:
            self.fail(f"{state!r} is no state that jobs end in - write {', '.join(_STATES)}", param, ctx)
        days = Duration().convert(time_text, param, ctx) / 86_400
        return dict.fromkeys([state] if state else _STATES, days)


def _data(required: bool) -> Any:
    return click.option(
        "--data", type=click.Path(path_type=Path), metavar="DIR", required=required, help="Folder of the service."
    )


def _archive_options(verb: Any) -> Any:
    """FILE, --data and --json of what writes or reads a backup."""
    return click.argument("file", type=click.Path(path_type=Path))(_data(required=True)(json_option()(verb)))


@click.group("serve", invoke_without_command=True)
@_data(required=False)
@click.option("--host", help="Address to listen on; without tokens loopback alone.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="0 for any that is free.  [default: 8780]")
@click.option("--workers", type=click.IntRange(1, 4096), help="Jobs at a time.  [default: 1]")
@click.option("--executor", type=click.Choice(EXECUTORS), help="Where jobs run.  [default: local]")
@click.option(
    "--database", metavar="URL", help="PostgreSQL, for several servers that share --data: postgresql://USER@HOST/NAME."
)
@click.option("--tls-cert", metavar="FILE", help="PEM file of a certificate: answer over TLS.  [default: none]")
@click.option("--tls-key", metavar="FILE", help="PEM file of its key.")
@click.option(
    "-c", "--config", type=click.Path(path_type=Path), metavar="serve.toml", help="Limits, quotas, retention."
)
@click.option("--access-log", metavar="FILE", help="Append each request to it, as JSON; - for standard output.")
@click.option(
    "--keep", type=Keep(), multiple=True, metavar="[STATE=]TIME", help="Delete ended jobs after it: 30d, failed=7d."
)
@quiet_option()
@click.pass_context
def serve_command(
    ctx: click.Context,
    /,
    *,
    data: Path | None,
    config: Path | None,
    keep: tuple[dict[str, float], ...],
    quiet: bool,
    **given: Any,
) -> None:
    """Run the placement service until SIGTERM or Ctrl-C; running jobs are then kept, and queued again.

    \b
    pesto serve --data service
    curl http://127.0.0.1:8780/v1/jobs -d @job.json
    pesto serve token add ann --data service

    job.json is {"kind": "solve", "source": {"model": "nmt"}}, for one. Jobs are acknowledged when they are on the
    disk, and run whatever happens (docs/guides/service.md).
    """
    if ctx.invoked_subcommand is not None:
        return
    if data is None:
        raise UsageError.build("no folder is given", remedy="give --data DIR, where jobs and files are kept")
    if given["database"] == "":
        raise UsageError.build(
            "--database has no address", remedy="write postgresql://USER@HOST:5432/NAME, or leave it out"
        )
    if threading.current_thread() is threading.main_thread():
        # Nothing is done at SIGHUP until the server answers: certificate and tokens are read then.
        signal.signal(signal.SIGHUP, lambda *_: None)
    from pesto.service.serve.server import serve

    chosen = configured(config, keep_days=dict(ChainMap(*reversed(keep))), **given)

    def say_ready(url: str) -> None:
        if not quiet:
            workers = plural(chosen.workers, "job")
            aside(one_line(f"pesto: serving {data} at {url}, {workers} at a time; Ctrl-C ends it"))

    serve(data, chosen, say_ready)


@serve_command.command("backup")
@_archive_options
def backup_command(*, file: Path, data: Path, as_json: bool) -> None:
    """Write all jobs, uploads, results and tokens to FILE (a tar file), also while the service runs."""
    saved = back_up(data, file)
    click.echo(to_json(saved._asdict()) if as_json else f"{one_line(str(file))}: {_describe(saved)}")


@serve_command.command("restore")
@_archive_options
def restore_command(*, file: Path, data: Path, as_json: bool) -> None:
    """Make the folder of a service from a backup; jobs that ran then are queued again when it starts."""
    saved = restore(file, data)
    click.echo(to_json(saved._asdict()) if as_json else f"{one_line(str(data))}: {_describe(saved)}")


def _describe(saved: Saved) -> str:
    lost = f"; {plural(saved.lost, 'file')} of the database lost on the disk" if saved.lost else ""
    return f"{plural(saved.jobs, 'job')}, {plural(saved.files, 'file')}, {size(saved.bytes)}{lost}"


@serve_command.group("token")
def token_group() -> None:
    """Who may use the service: tokens, of which the folder keeps hashes alone."""


@token_group.command("add")
@click.argument("name")
@_data(required=True)
@click.option(
    "--role",
    type=click.Choice([role.value for role in tokens.Role]),
    default="user",
    show_default=True,
    help="admin: jobs of everybody; reader: sees them, and changes nothing.",
)
@click.option("--expires", type=Duration(), metavar="TIME", help="After such a time, as 90d.  [default: never]")
@click.option("--jobs", type=click.IntRange(1), default=4, show_default=True, help="Running at a time.")
@click.option("--queued", type=click.IntRange(1), default=100, show_default=True, help="Waiting at a time.")
@click.option("--bytes", "upload", type=Size(), default="5G", show_default=True, help="Of uploaded files.")
@click.option("--hours", type=float, default=10.0, show_default=True, help="Of workers, in 24 hours.")
@click.option(
    "--priority",
    type=click.IntRange(-100, 100),
    default=0,
    show_default=True,
    help="The highest of a job; admins: 100.",
)
@json_option()
def add_command(
    *, name: str, data: Path, role: str, expires: float | None, upload: int, as_json: bool, **quota: Any
) -> None:
    """Make a token for NAME, and print it: it is shown this once."""
    make_folder(data, private=True)
    given = tokens.Quota(bytes=upload, **quota)
    token = tokens.add(data, name, given, role=tokens.Role(role), expires_s=expires)
    click.echo(to_json({"name": name, "token": token}) if as_json else token)


@token_group.command("list")
@_data(required=True)
@json_option()
def list_command(*, data: Path, as_json: bool) -> None:
    """List the names that have a token: role, quota, when it expires, and when it was used last."""
    found, uses = tokens.listed(data), tokens.last_uses(data)
    if as_json:
        rows = [
            {"name": one.name, "role": one.role.value, "expires": one.expires, "last_used": uses.get(one.id)}
            | {key: getattr(one.quota, key) for key in one.quota.__struct_fields__}
            for one in found
        ]
        click.echo(to_json({"tokens": rows}))
        return
    lines = [
        (
            one.name, one.role.value, str(one.quota.jobs), str(one.quota.queued), size(one.quota.bytes),
            f"{one.quota.hours:g}", str(one.quota.priority),
            _day(one.expires) if one.valid(time.time()) else "expired", _day(uses.get(one.id)),
        )
        for one in found
    ]  # fmt: skip
    head = ("name", "role", "jobs", "queued", "bytes", "hours a day", "priority", "expires", "last used")
    click.echo("\n".join(align_rows([head, *lines], "<<>>>>><<")))


def _day(when: float | None) -> str:
    """Format a time for people."""
    return "never" if when is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(when))


@token_group.command("remove")
@click.argument("name")
@_data(required=True)
@click.option(
    "--jobs",
    type=click.Choice(["keep", "cancel"]),
    default="keep",
    show_default=True,
    help="What becomes of its jobs that have not ended.",
)
@click.option("--give", metavar="NAME2", help="Give all of its jobs to this token instead.")
def remove_command(*, name: str, data: Path, jobs: str, give: str | None) -> None:
    """Forget NAME's token, also in a server that runs: its streams end, and requests with it are refused.

    Its jobs stay as they are, and admins see them; --jobs cancel cancels them, --give hands them to another token.
    """
    if give is not None and jobs != "keep":
        raise UsageError.build("the jobs cannot be both cancelled and given away", remedy="leave out --jobs or --give")
    tokens.remove(data, name, cancel=jobs == "cancel", give=give)


@token_group.command("webhook-key")
@click.argument("name", default="")
@_data(required=True)
@json_option()
def webhook_key_command(*, name: str, data: Path, as_json: bool) -> None:
    """Print the key by which the webhooks of NAME's jobs are signed; without NAME, of jobs of no token.

    Whoever has it can sign as this service does: give it to the receiver of NAME's webhooks alone.
    """
    if name and name not in [one.name for one in tokens.listed(data)]:
        raise UsageError.build(f"there is no token {quoted(name)}", remedy="see pesto serve token list")
    make_folder(data, private=True)
    key = webhook_key(data, name)
    click.echo(to_json({"name": name, "key": key}) if as_json else key)
