"""Check a request before it becomes a job, from names alone, and describe requests as JSON Schema."""

from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec.structs import asdict

from pesto.choosing.strategy_choice.timed_split import RUNS_ALONE, named_cuts
from pesto.core.errors import UsageError
from pesto.core.files.json import quoted
from pesto.core.files.toml import suggest
from pesto.core.option import options_of
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.cluster_file import cluster_names
from pesto.inputs.load import precheck
from pesto.verbs.jobs.request import SOURCE_OPTIONS, JobRequest, JobSettings, JobSource, Kind, plans_of
from pesto.verbs.verb_options import CompareOptions, SplitOptions, SweepOptions
from solvers.api import SOLVERS

PRESET = "v100x2-nvlink"
"""The cluster of a request that names none, as of the command line."""
_STEP = ("source", "cluster", "costs")
_GO_WITH: dict[Kind, tuple[str, ...]] = {
    "solve": (*_STEP, "settings", "start", "beside", "cuts"),
    "compare": (*_STEP, "settings", "methods"),
    "sweep": (*_STEP, "settings", "sweep"),
    "split": ("source", "cluster", "settings", "split"),
    "check": (*_STEP, "plan", "certificate"),
    "report": (*_STEP, "plan", "against"),
}
"""Fields of a request beside those of any kind."""
_OPTIONS: dict[Kind, type] = {"compare": CompareOptions, "sweep": SweepOptions, "split": SplitOptions}
_SETTINGS = {
    kind: tuple(each.name for each in options_of(Settings) if each.name in (its.name for its in options_of(declared)))
    for kind, declared in _OPTIONS.items()
}
"""Settings of kinds that do not have all."""
_OF_ALL = ("kind", "out", "priority", "label", "limits", "notify")
_NEEDED: dict[Kind, tuple[str, ...]] = {
    "sweep": ("source", "sweep"),
    "split": ("source", "split"),
    **dict.fromkeys(("check", "report"), ("plan",)),
}
"""Fields without which nothing is done; a source of the others."""
_ROOM = 200
"""Bytes that a file's name may have."""


def checked(request: JobRequest) -> None:
    """Refuse what cannot be done, from what the request says alone; the content of files is refused when it is run.

    UsageError with the remedy, and the nearest name where one is not known.
    """
    known, empty = fields_of(request.kind), JobRequest(kind="solve")
    for name in request.__struct_fields__:
        if name not in known and getattr(request, name) != getattr(empty, name):
            raise UsageError.build(f"{name} does not go with the kind {request.kind}", remedy="leave it out")
    _texts(request)
    if request.source is not None:
        first_look_at(request.source)
    elif request.plan is None:
        raise UsageError.build("no source is given", remedy="name a model, or the blob of a graph file")
    for plan in plans_of(request):
        if (plan.blob is None) == (plan.job is None):
            raise UsageError.build("a plan is a blob or of a job", remedy="give one of the two")
    cluster = request.cluster
    if isinstance(cluster, str) and cluster not in (presets := cluster_names()):
        raise UsageError.build(
            f"no cluster is named {quoted(cluster)}", remedy=f"{suggest(cluster, presets)}; or upload a file"
        )
    match request.kind:
        case "solve":
            Settings(**given_settings(request))
            _check_cuts(request)
        case "compare":
            compare_options(request)
        case "sweep":
            sweep_options(request)
        case "split":
            split_options(request)
        case _ if request.plan is None:
            raise UsageError.build(f"the kind {request.kind} is of a plan", remedy="give one")


def fields_of(kind: Kind) -> tuple[str, ...]:
    """Names of the fields of a request that go with a kind."""
    return (*_OF_ALL, *_GO_WITH[kind])


def needed_of(kind: Kind) -> tuple[str, ...]:
    """Return those of them without which it is refused."""
    return _NEEDED.get(kind, ("source",))


def settings_of(kind: Kind) -> tuple[str, ...]:
    """Names of the settings of a kind; none for a kind that has no field for them."""
    return _SETTINGS.get(kind, JobSettings.__struct_fields__) if "settings" in _GO_WITH[kind] else ()


def named_source(source: JobSource, file: Path | None = None) -> Source:
    """Return a source as the verbs take it; `file` is where its blob lies, by default the name alone."""
    given = Path(source.name or "graph.json") if source.blob is not None else None
    return Source(file=file or given, **{name: getattr(source, name) for name in SOURCE_OPTIONS}).checked()


def given_settings(request: JobRequest) -> dict[str, Any]:
    """Return the settings that a request gives; UsageError for one that does not go with its kind."""
    given, have = request.settings.given(), _SETTINGS.get(request.kind)
    for name in given:
        if have is not None and name not in have:
            raise UsageError.build(
                f"{name} is no setting of the kind {request.kind}", remedy=f"leave it out: {', '.join(have)} are"
            )
    solver = given.get("solver")
    if solver is not None and solver not in SOLVERS:
        raise UsageError.build(f"no solver is called {quoted(solver)}", remedy=suggest(str(solver), SOLVERS))
    return given


def compare_options(request: JobRequest) -> CompareOptions:
    """Return the options of a comparison; UsageError for one that is out of range."""
    return CompareOptions(methods=request.methods or "all", **given_settings(request))


def sweep_options(request: JobRequest) -> SweepOptions:
    """Return the options of a sweep; UsageError for one that is out of range."""
    if request.sweep is None:
        raise UsageError.build("no axis is swept", remedy='give sweep, such as {"links": [0.1, 1]}')
    return SweepOptions(**asdict(request.sweep), **given_settings(request))


def split_options(request: JobRequest) -> SplitOptions:
    """Return the options of a split; UsageError for one that is out of range."""
    if request.split is None:
        raise UsageError.build("how many workers?", remedy='give split, such as {"workers": "2x2"}')
    return SplitOptions(**asdict(request.split), **given_settings(request))


def first_look_at(source: JobSource) -> None:
    """UsageError for a source that names no graph or several, and for a model that is not there."""
    named = named_source(source)
    if source.name is not None and source.blob is None:
        raise UsageError.build("a source's name is that of its file", remedy="give its blob, or leave it out")
    if source.model is not None:
        precheck(named)


def _texts(request: JobRequest) -> None:
    """Raise UsageError for a text that would harm where it is shown, and for a name that no file can have."""
    for what, text in (("label", request.label), ("methods", request.methods), ("cuts", request.cuts)):
        if text is not None and not text.isprintable():
            raise UsageError.build(
                f"the {what} {quoted(text)} has characters that cannot be shown", remedy="leave them out"
            )
    files = [request.source, request.cluster, request.costs, *plans_of(request)]
    for name in (request.out, *(getattr(file, "name", None) for file in files)):
        if name is not None and (name in (".", "..") or not name.isprintable() or len(name.encode()) > _ROOM):
            raise UsageError.build(
                f"no file can be called {quoted(name)}", remedy="give a short name, such as step.json"
            )


def _check_cuts(request: JobRequest) -> None:
    """Raise UsageError for cuts that cannot be, and for what does not go with cuts."""
    if request.cuts is None:
        return
    if request.beside is not None:
        raise UsageError.build(
            f"beside keeps variables whole where a plan has them, and {RUNS_ALONE}",
            remedy="leave out cuts, or submit a step that does both",
        )
    for name in ("costs", "start"):
        if getattr(request, name) is not None:
            raise UsageError.build(f"{name} is for placements alone", remedy="leave it out, or cuts")
    named_cuts(request.cuts)
    if request.source is not None and not named_source(request.source).has_shapes:
        raise UsageError.build(
            "a graph file has no shapes to cut by", remedy="give a model or a GraphDef, or leave out cuts"
        )


def request_schema(refs: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON schema of all kinds, and the schemas it refers to by name; `refs` formats {name} as a reference.

    What it admits can still be refused: names that are not known, values out of range, files that are not there.
    """
    kinds: list[Any] = []
    for kind in get_args(Kind):
        names, title = settings_of(kind), kind.capitalize()
        options = [each for each in options_of(Settings) if each.name in names]
        fields = [(each.name, each.checked_kind | None, None) for each in options]
        settings = msgspec.defstruct(f"{title}Settings", fields, kw_only=True, forbid_unknown_fields=True)
        hints, members = get_type_hints(JobRequest, include_extras=True), list[tuple[Any, ...]]()
        for field in msgspec.structs.fields(JobRequest):
            if field.name in needed_of(kind):
                hint = hints[field.name]
                members.append((field.name, reduce(or_, [one for one in get_args(hint) if one is not type(None)])))
            elif field.name == "settings":
                members.append((field.name, settings, msgspec.field(default_factory=settings)))
            elif field.name in fields_of(kind) and field.name != "kind":
                members.append((field.name, hints[field.name], field.default))
        kinds.append(
            msgspec.defstruct(
                f"{title}Job", members, tag=kind, tag_field="kind", kw_only=True, forbid_unknown_fields=True
            )
        )
        kinds[-1].__doc__ = f"A job of the kind {kind}."
    (schema,), parts = msgspec.json.schema_components([reduce(or_, kinds)], ref_template=refs)
    return schema, parts
