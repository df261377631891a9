"""A job as it is requested: the JSON object that is submitted, with files by their SHA-256; nothing names a path."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

import msgspec
from msgspec import Meta

from pesto.choosing.whatif.grid import AXES
from pesto.core.option import REQUIRED, Option, options_of
from pesto.core.settings import Settings, SettingsOptions
from pesto.core.source import Source
from pesto.verbs import verb_options

PLAN, SPLIT, REPORT = "plan.json", "split.json", "report.html"
"""Files that jobs leave."""
ANSWER = "answer.json"
"""File with the one object of the verb's --json."""
PAGE = "page.txt"
"""File with the text that the verb prints for people."""
Kind = Literal["solve", "compare", "sweep", "split", "check", "report"]
Sha = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="SHA-256 of a file that was uploaded.")]
FileName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=120,
        pattern=r"^[^/\\\u0000-\u001f\u007f]+$",
        description="What the file is called: its ending says what it holds, and plans name it.",
    ),
]
Name = Annotated[str, Meta(max_length=100)]
Text = Annotated[str, Meta(max_length=200)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class _RequestPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a request: a value, in which a key that is not known is refused."""


class BlobFile(_RequestPart, frozen=True):
    """A file that was uploaded."""

    blob: Sha
    name: FileName | None = None


class PlanFile(_RequestPart, frozen=True):
    """A plan: a file that was uploaded, or the plan of a job; exactly one of the two."""

    blob: Sha | None = None
    job: Name | None = None
    name: FileName | None = None


class _Given(_RequestPart, frozen=True):
    """Options of which some are given, each None where it is not."""

    def given(self) -> dict[str, Any]:
        """Return the options that are given, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}


if TYPE_CHECKING:

    class JobSettings(_Given, frozen=True):
        """The options of `pesto.Settings`, as far as the kind has them; left out, the verb's default."""

        time_limit_s: float | None = None

        def __init__(self, **settings: Unpack[SettingsOptions]) -> None:
            """Take each by its name."""
else:
    JobSettings = msgspec.defstruct(
        "JobSettings",
        [
            (each.name, (Name if each.kind is str else each.kind) | None, None)  # bounds are refused by `Settings`
            for each in options_of(Settings)
        ],
        bases=(_Given,), module=__name__, frozen=True, kw_only=True,
        namespace={"__doc__": "The options of `pesto.Settings`, as far as the kind has them; left out, "
                   "the verb's default."},
    )  # fmt: skip


def _options(name: str, declared: type, some: Iterable[str], doc: str, own: Iterable[tuple[Any, ...]] = ()) -> Any:
    """Return the type of an object with some of a verb's options, from their declarations, and fields of its own."""
    fields = [
        (option.name, _sent_kind(option), *([] if option.default is REQUIRED else [option.default]))
        for option in options_of(declared)
        if option.name in some
    ]
    return msgspec.defstruct(
        name,
        [*own, *fields],
        bases=(_RequestPart,),
        module=__name__,
        frozen=True,
        kw_only=True,
        namespace={"__doc__": doc},
    )


def _sent_kind(option: Option) -> Any:
    """Return the type of an option in a request: as declared, and texts and whole numbers no larger than may be sent.

    Numbers of axes are a list, and have no text here.
    """
    if option.kind == Iterable[float]:
        return tuple[float, ...]
    said = Meta(description=option.text)
    if option.values is str:
        kind: Any = Annotated[Name, said]
    elif option.values == tuple[str, ...]:
        kind = Annotated[tuple[Annotated[str, Meta(max_length=1000)], ...], said]
    elif option.values is int and option.meta.le is None:
        kind = Annotated[int, Meta(ge=option.meta.ge, le=2**31 - 1, description=option.text)]
    else:
        return option.checked_kind
    return kind if option.values is option.kind else kind | None


_OF_THIS_MACHINE = ("file", "saved_model", "signature", "function")
"""Options of a source that name files and programs of the machine that has them."""
SOURCE_OPTIONS = tuple(each.name for each in options_of(Source) if each.name not in _OF_THIS_MACHINE)
"""Options of a source that a job has too."""
JobSource: Any = _options(
    "JobSource", Source, SOURCE_OPTIONS,
    "The training step: a built-in model, or a graph file or GraphDef that was uploaded (docs/guides/own-step.md).",
    # The name's ending: .json or .json.gz is the project's own, .pb and .pbtxt are GraphDefs.
    own=[("blob", Sha | None, None), ("name", FileName | None, None)],
)  # fmt: skip
_OF_SPLITS = ("workers", "method", "objective", "replicate", "halo", "memory_gib", "whole")
SplitOptions: Any = _options("SplitOptions", verb_options.SplitOptions, _OF_SPLITS, "The options of `pesto split`.")
SweepOptions: Any = _options(
    "SweepOptions", verb_options.SweepOptions, (*AXES, "cross"),
    "The axes of `pesto sweep`: factors of the cluster's own, and numbers of accelerators.",
)  # fmt: skip


class JobLimits(_RequestPart, frozen=True):
    """Limits of one job; None is no limit."""

    seconds: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    """Wall-clock of all of it; then it is interrupted, as by Ctrl-C."""
    threads: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Processors that it may use at a time."""
    rss_bytes: Annotated[int, Meta(ge=1, le=2**60)] | None = None
    """Resident bytes of its processes together."""
    nodes: Count | None = None
    """Ops of its graph."""


class JobRequest(_RequestPart, frozen=True):
    """One job; `pesto.verbs.jobs.checks.checked` says what goes with which kind."""

    kind: Kind
    source: JobSource | None = None
    cluster: Name | BlobFile | None = None
    """A preset or a cluster file; None is the verb's default, for a plan that of the plan."""
    costs: BlobFile | None = None
    """A profile, or times of one's own (a name that ends in .csv)."""
    plan: PlanFile | None = None
    """The plan that is checked or reported; a check may be of a split or a pattern."""
    against: Annotated[tuple[PlanFile, ...], Meta(max_length=16)] = ()
    """Other plans of the same graph on the page of a report."""
    start: PlanFile | None = None
    """The plan that a solve begins from."""
    beside: PlanFile | None = None
    """The plan of another step, whose variables stay where it has them: those that the solved step has, too."""
    settings: JobSettings = JobSettings()
    cuts: Text | None = None
    """For a solve: also cut tensors so, auto or such as 2x2,4; the shortest step is chosen, a plan or a split."""
    methods: Text | None = None
    """For a comparison: names with commas between, or all."""
    split: SplitOptions | None = None
    sweep: SweepOptions | None = None
    certificate: bool = False
    """For a check: also how far from optimal the plan is at most."""
    out: FileName | None = None
    """Name of the result in what is printed, such as plan.json; nothing is written there."""
    priority: Annotated[int, Meta(ge=-100, le=100)] = 0
    label: Text = ""
    limits: JobLimits = JobLimits()
    notify: Annotated[str, Meta(min_length=1, max_length=1000, pattern="^https?://")] | None = None
    """An address that is told of the job's end, where the service allows that (docs/guides/service.md)."""


def kept_request(data: bytes) -> JobRequest | None:
    """Return a request that was accepted before; None for one of another version, with what this one does not know."""
    try:
        return msgspec.json.decode(data, type=JobRequest)
    except msgspec.DecodeError:
        return None


def blobs_of(request: JobRequest) -> tuple[str, ...]:
    """Return the SHA-256 of the uploaded files that a job needs, each once."""
    files = [
        request.source, request.cluster, request.costs, request.plan, request.start, request.beside, *request.against
    ]  # fmt: skip
    return tuple(dict.fromkeys(sha for file in files if (sha := getattr(file, "blob", None)) is not None))


def digests_of(request: JobRequest) -> dict[str, str]:
    """SHA-256 of each uploaded file that a job needs, by what it is."""
    files = {"source": request.source, "cluster": request.cluster, "costs": request.costs, "plan": request.plan}
    others = {f"against {k}": plan for k, plan in enumerate(request.against, 1)}
    named = files | {"start": request.start, "beside": request.beside} | others
    return {name: sha for name, file in named.items() if (sha := getattr(file, "blob", None)) is not None}


def plans_of(request: JobRequest) -> Iterator[PlanFile]:
    """The plans that a job is given."""
    yield from (plan for plan in (request.plan, request.start, request.beside, *request.against) if plan is not None)


def resolved(request: JobRequest, shas: Mapping[str, str]) -> JobRequest:
    """Return the request with the plans of jobs as files; `shas`: SHA-256 of each job's plan, by the job's id."""

    def as_file(plan: PlanFile) -> PlanFile:
        return plan if plan.job is None else PlanFile(blob=shas[plan.job], name=plan.name)

    return msgspec.structs.replace(
        request,
        plan=request.plan and as_file(request.plan),
        start=request.start and as_file(request.start),
        beside=request.beside and as_file(request.beside),
        against=tuple(map(as_file, request.against)),
    )


ENTRY = "pesto.verbs.jobs.run_job:answer"
"""Function of a worker that does an `Order`; by name, since a server loads no solver."""
READY = "pesto.verbs.jobs.run_job:prepare_worker"
"""Function that a worker calls before its first job; by name for the same reason."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a worker gets it, as JSON; the worker has the folders, or copies of the files that it needs."""

    request: JobRequest
    blobs: str
    """Folder where uploaded files lie under their SHA-256."""
    out: str
    """Folder of the job's files."""
