"""The graph to plan, as a user names it."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

from pesto.core.errors import UsageError
from pesto.core.option import expect, expect_count, expect_names, option, optional_path, options_of

GRAPH_DEF = (".pb", ".pbtxt", ".meta")
"""Endings of files with a GraphDef, in .meta within a MetaGraphDef; any other file is the project's own."""
EVERYTHING = ("*",)
"""The fetches that stand for all ops of a GraphDef that nothing reads."""
MICRO_BATCHES = "micro-batches"
READ_SCOPE = "pesto_weights_"
"""Before the number of a variable, the scope of its reads by each batch in a step whose weights may be late."""
_UPDATED, _LATE = "batches, an update after", "weights late by"
_SHAPE = re.compile(r"^(.+)=((?:\d{1,12}(?:,\d{1,12})*)?)$")
_MOST_WEIGHTS = 1 << 16
"""Variables that a label may speak of."""


class Cut(NamedTuple):
    """The way in which a function's batch is cut."""

    batches: int
    """Equal pieces of it."""
    late: tuple[int, ...] | None = None
    """None: gradients are added up before one update. Else there are several updates, each with `every` pieces, and
    each trained variable, in the order in which the first piece reads them, is read so many updates before the one
    that is the latest when nothing is late; 0 where the tuple is too short."""
    every: int = 1
    """Where weights are late: pieces whose gradients are added up before each update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One graph; exactly one of model, file, saved_model and function is given.

    Each option is declared here and nowhere else: the command line and jobs follow.
    """

    model: Annotated[
        str | None, option("A built-in model: see pesto models.", "Input", metavar="NAME", completes="models")
    ] = None
    variant: Annotated[
        str | None,
        option("The model's variant; default: the paper's first.", "Input", metavar="V", completes="variants"),
    ] = None
    file: Annotated[
        Path | None, option("The project's graph file, or a GraphDef (.pb, .pbtxt).", "Input", flag="--graph")
    ] = None
    fetch: Annotated[
        tuple[str, ...],
        option(
            "Op that the step ends with (GraphDef); repeatable; '*' for all that nothing reads.", "Input", metavar="OP"
        ),
    ] = ()
    saved_model: Annotated[Path | None, option("A SavedModel folder.", "Input", metavar="DIR")] = None
    signature: Annotated[
        str | None, option("Of a SavedModel; default: serving_default, or the only one.", "Input", metavar="NAME")
    ] = None
    function: Annotated[
        str | None,
        option(
            "A tf.function with an input_signature, a compiled Keras model, or a callable without arguments that "
            "returns one of them, (model, (x, y)), (function, *specs) or (tf.Graph, fetches).",
            "Input", metavar="MODULE:CALLABLE",
        ),
    ] = None  # fmt: skip
    batch: Annotated[int | None, option("Batch size where the graph leaves it open.", "Input", ge=1)] = None
    shape: Annotated[
        tuple[str, ...],
        option(
            "Shape of a feed that the graph leaves open, or the largest of an op that nothing limits; repeatable.",
            "Input", metavar="NAME=16,40",
        ),
    ] = ()  # fmt: skip
    micro_batches: Annotated[
        int | None, option("M batches, their gradients added up, one update.", "Input", ge=1, metavar="M")
    ] = None
    """Micro-batches are pieces of a function's batch; in any other step each has a batch of its own."""
    late: tuple[int, ...] | None = None
    """For a function, as `Cut.late`; None: gradients are added up."""
    every: int = 1
    """For a function, as `Cut.every`."""

    @classmethod
    def from_keywords(cls, **given: Any) -> "Source":
        """Return the graph that keyword arguments name; UsageError for a path or names of another type."""
        declared: Any = cls
        kinds = {each.name: each.values for each in options_of(declared)}
        for name, value in given.items():
            if kinds[name] is Path:
                given[name] = optional_path(name, value)
            elif kinds[name] == tuple[str, ...]:
                given[name] = expect_names(name, value)
        return cls(**given)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each feed or op, by name; UsageError for a text that says none."""
        return feed_shapes(self.shape)

    @property
    def pieces(self) -> int | None:
        """The micro-batches into which a function cuts its batch; None where it cuts none."""
        return self.micro_batches if self.function is not None and self.micro_batches != 1 else None

    @property
    def cut(self) -> Cut | None:
        """The way in which a function cuts its batch; None where it does not."""
        return None if self.pieces is None else Cut(self.pieces, self.late, self.every)

    @property
    def takes_shapes(self) -> bool:
        """True where shapes can be given for its feeds: of a GraphDef, a SavedModel or a function of one batch."""
        return self.has_shapes and self.model is None and not self.pieces

    @property
    def has_shapes(self) -> bool:
        """True for a graph of TensorFlow; the project's own file has bytes and no shapes."""
        return self.file is None or self.file.suffix in GRAPH_DEF

    def checked(self) -> "Source":
        """Itself; UsageError unless it names exactly one graph and nothing that does not go with it."""
        for name in ("model", "variant", "signature", "function"):
            expect(name, getattr(self, name), str | None, "a name")
        for name in self.fetch:
            expect("fetch", name, str, "names of ops")
        if self.batch is not None:
            expect_count("batch", self.batch)
        if self.micro_batches is not None:
            expect_count("micro_batches", self.micro_batches)
        expect_count("updates_each", self.every)
        if self.pieces and self.batch:
            check_cut(self.batch, self.pieces, f"function {self.function}")
        if self.pieces and self.every > 1:
            # UsageError for an update behind so many micro-batches that these are not twice as many, or are no
            # multiple.
            pieces = self.pieces
            every = self.every
            if pieces % every or pieces < 2 * every:
                fitting = sorted({max(2, pieces // every) * every, max(2, -(-pieces // every)) * every})
                raise UsageError.build(
                    f"an update behind every {every} of {pieces} micro-batches",
                    remedy=(
                        f"give {' or '.join(map(str, fitting))} "
                        "micro-batches, two or more times as many as an update has, or fewer an update"
                    ),
                )
        given = [x for x in (self.model, self.file, self.saved_model, self.function) if x is not None]
        if len(given) != 1:
            found = "several graphs" if given else "no graph"
            raise UsageError.build(
                f"the options name {found}", remedy="give one of a model, a graph file, a SavedModel, a function"
            )
        if self.variant is not None and self.model is None:
            raise UsageError.build("a variant goes with a model", remedy="name the model, or leave it out")
        if self.signature is not None and self.saved_model is None:
            raise UsageError.build("a signature goes with a SavedModel", remedy="name its folder, or leave it out")
        own = self.file is not None and self.file.suffix not in GRAPH_DEF
        if self.fetch and (self.file is None or own):
            raise UsageError.build(
                "fetch goes with a GraphDef", remedy="give one, a file ending in .pb, .pbtxt or .meta, or leave it out"
            )
        if self.shapes and not self.takes_shapes:
            raise UsageError.build(
                "shapes go with a GraphDef, a SavedModel or a function of one batch; other graphs have their own",
                remedy="leave them out",
            )
        if self.batch and own:
            raise UsageError.build(
                "a batch goes with TensorFlow's graphs; the project's file has its sizes", remedy="leave it out"
            )
        return self


class StepKeywords(TypedDict, total=False):
    """The options of `Source` for a step that runs, as keyword arguments; for type checkers, a test compares them."""

    model: str | None
    variant: str | None
    fetch: str | Iterable[str]
    saved_model: str | Path | None
    signature: str | None
    function: str | None
    batch: int | None
    shape: str | Iterable[str]


class SourceKeywords(StepKeywords, total=False):
    """All options of `Source` but its file as keyword arguments."""

    micro_batches: int | None


def feed_shapes(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Read shapes of feeds and ops, each as NAME=16,40, by name; UsageError for a text that says none."""
    found = {}
    for text in texts:
        match = _SHAPE.match(text)
        if match is None or match[1] in found:
            what = "names no feed or op and its sizes" if match is None else "is a second shape of one feed or op"
            raise UsageError.build(
                f"shape {text[:80]!r} {what}", remedy="give NAME=16,40, all sizes in order, each name once"
            )
        found[match[1]] = tuple(map(int, match[2].split(","))) if match[2] else ()
    return found


def output_of(name: str) -> tuple[str, int]:
    """Return the op that a tensor's name is of, and the number of its output: 0 where the name has none."""
    op, _, number = name.rpartition(":")
    return (op, int(number)) if op and number.isdecimal() else (name, 0)


def written(shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Write shapes of feeds and ops as `feed_shapes` reads them."""
    return tuple(f"{name}={','.join(map(str, sizes))}" for name, sizes in shapes.items())


def check_cut(batch: int, pieces: int, label: str) -> None:
    """Raise UsageError for a batch that cannot be cut into so many equal micro-batches."""
    if batch % pieces:
        fitting = sorted({batch - batch % pieces, batch + pieces - batch % pieces} - {0})
        raise UsageError.build(
            f"a batch of {batch} cannot be cut into {pieces} equal micro-batches",
            where=label,
            remedy=f"give a batch of {' or '.join(map(str, fitting))}, or another number of micro-batches",
        )


PROFILE = "profile"
TIMES = "times"
"""Kinds of files that times of ops come from: measured by pesto profile, or the user's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origin of a cluster or of op times."""

    kind: str = ""
    """preset or file of a cluster; profile or times (a file of the user's own) of costs; empty: not known."""
    name: str = ""
    """Name of the preset or the file; of a profile the source of its graph."""
    digest: str = ""
    """First 8 hexadecimal digits of the SHA-256 of the content; empty for a preset, and where it is not known."""

    @classmethod
    def of_file(cls, kind: str, name: str, content: bytes) -> "Origin":
        """Return the origin of what a file of this content says."""
        return cls(kind=kind, name=name, digest=hashlib.sha256(content).hexdigest()[:8])


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOrigin:
    """Origin of a graph, as fields in files of graphs, splits and plans.

    Raise ValueError for values that no graph is made with.
    """

    kind: str = ""
    """model, function, file, SavedModel or other; empty: the file, of an older version, does not say."""
    name: str = ""
    """Name of the model or the file, MODULE:NAME of the function, folder of the SavedModel."""
    variant: str = ""
    """Variant of the model, or signature of the SavedModel."""
    batch: int | None = None
    """Batch size of the model or of a function that cuts its batch; None where none was given."""
    micro_batches: int | None = None
    """Micro-batches of the step; None: the step as it is."""
    late: tuple[int, ...] | None = None
    """For a function, as `Cut.late`; None: gradients are added up before one update."""
    every: int = 1
    """For a function, as `Cut.every`."""

    def __post_init__(self) -> None:
        """Validate: the values may come from anybody's file."""
        counts = [x for x in (self.batch, self.micro_batches, self.every) if x is not None]
        if not all(1 <= x < 10**9 for x in counts) or not all(0 <= x < 10**9 for x in self.late or ()):
            raise ValueError("batch, micro_batches, every and late must be counts below 1e9")
        if len(self.late or ()) > _MOST_WEIGHTS:
            raise ValueError(f"late has more than {_MOST_WEIGHTS} variables")
        if (self.micro_batches or self.every) % self.every:
            raise ValueError(f"micro_batches {self.micro_batches} is no multiple of every {self.every}")

    @property
    def model(self) -> Source | None:
        """Inside: the built-in model that the graph is of, or None when it came from elsewhere."""
        if self.kind != "model":
            return None
        return Source(model=self.name, variant=self.variant, batch=self.batch, micro_batches=self.micro_batches)

    @property
    def cut_function(self) -> Source | None:
        """Inside: the function whose batch is cut; None for any other graph."""
        if self.kind != "function" or self.micro_batches is None:
            return None
        return Source(
            function=self.name, batch=self.batch, micro_batches=self.micro_batches, late=self.late, every=self.every
        )  # fmt: skip

    def unrolled(self, micro_batches: int) -> "GraphOrigin":
        """Return the origin of the graph of several micro-batches, each with a batch of its own."""
        return GraphOrigin(kind="other") if self.kind == "function" else replace(self, micro_batches=micro_batches)

    @property
    def from_file(self) -> bool:
        """True for a graph that was read from a file, whose user may not have its program."""
        return self.kind in ("file", SAVED_MODEL)

    @property
    def takes_shapes(self) -> bool:
        """True for a graph whose shapes can be given: of a file, or a function of one batch."""
        return self.from_file or (self.kind == "function" and self.micro_batches is None)


SAVED_MODEL = "SavedModel"
"""Kind of the origin of a graph that is one of these."""


class GraphSource(str):
    """One line that names a graph for people on its way into a `Graph`, with the origin that it was written from."""

    origin: GraphOrigin

    def __new__(cls, line: str, origin: GraphOrigin = GraphOrigin(kind="other")) -> "GraphSource":
        """Join a line and the fields that it was written from."""
        made = super().__new__(cls, line)
        made.origin = origin
        return made


def origin_of(source: str) -> GraphOrigin:
    """Return the fields of a graph's source; kind "other" for a plain line."""
    return source.origin if isinstance(source, GraphSource) else GraphOrigin(kind="other")


def model_source(model: str, variant: str, batch: int | None) -> GraphSource:
    """Return the source of a graph of a built-in model."""
    line = f"model {model} {variant}" + (f" batch {batch}" if batch else "")
    return GraphSource(line, GraphOrigin(kind="model", name=model, variant=variant, batch=batch or None))


def file_source(name: str) -> GraphSource:
    """Return the source of a graph in a GraphDef's file."""
    return GraphSource(f"file {name}", GraphOrigin(kind="file", name=name))


def saved_model_source(folder: str, signature: str) -> GraphSource:
    """Return the source of a graph that is a signature of a SavedModel."""
    origin = GraphOrigin(kind=SAVED_MODEL, name=folder, variant=signature)
    return GraphSource(f"{SAVED_MODEL} {folder} {signature}", origin)


def function_source(reference: str, batch: int | None, cut: Cut | None) -> GraphSource:
    """Return the source of the graph of a function, MODULE:NAME, as it cuts its batch."""
    if cut is None:
        return GraphSource(f"function {reference}", GraphOrigin(kind="function", name=reference))
    turn = "each" if cut.every == 1 else f"every {cut.every}"
    if cut.late is None:
        how = MICRO_BATCHES
    else:
        # Runs of equal numbers, such as 2x4 for four times 2.
        runs = " ".join(f"{by}x{len(list(run))}" for by, run in groupby(cut.late)) or "0"
        how = f"{_UPDATED} {turn}, {_LATE} {runs}"
    origin = GraphOrigin(
        kind="function", name=reference, batch=batch or None, micro_batches=cut.batches, late=cut.late, every=cut.every
    )  # fmt: skip
    return GraphSource(
        f"function {reference}" + (f" batch {batch}" if batch else "") + f", {cut.batches} {how}", origin
    )


# Files that older versions wrote have the line alone, and so have graphs of networkx.

_MODEL_LINE = re.compile(rf"model ([\w-]+) ([\w-]+)(?: batch (\d{{1,9}}))?(?:, (\d{{1,9}}) {MICRO_BATCHES})?")
_CUT_LINE = re.compile(
    rf"function (\S+?)(?: batch (\d{{1,9}}))?, (\d{{1,9}}) "
    rf"(?:{MICRO_BATCHES}|{_UPDATED} (?:each|every (\d{{1,9}})), {_LATE} "
    r"(0|\d{1,9}x\d{1,9}(?: \d{1,9}x\d{1,9})*))"
)


def read_source(line: str, origin: GraphOrigin = GraphOrigin()) -> GraphSource:
    """Return the source that a file states: its line, and its fields or, of an older file, those that the line gives.

    The line is one of `model_source` and the like; kind "other" where it is none of these.
    """
    if origin.kind:
        return GraphSource(line, origin)
    try:
        return GraphSource(line, _read_origin(line))
    except ValueError:  # numbers that no graph is made with
        return GraphSource(line)


def _read_origin(line: str) -> GraphOrigin:
    if match := _MODEL_LINE.fullmatch(line):
        batch, micro_batches = (None if number is None else int(number) for number in match.groups()[2:])
        return GraphOrigin(
            kind="model", name=match[1], variant=match[2], batch=batch, micro_batches=micro_batches
        )  # fmt: skip
    if match := _CUT_LINE.fullmatch(line):
        reference, size, pieces, turn, said = match.groups()
        runs = [] if said in (None, "0") else [tuple(map(int, run.split("x"))) for run in said.split()]
        if sum(count for _, count in runs) > _MOST_WEIGHTS:
            raise ValueError(f"more than {_MOST_WEIGHTS} variables")
        late = None if said is None else tuple(by for by, count in runs for _ in range(count))
        return GraphOrigin(
            kind="function", name=reference, batch=int(size) if size else None, micro_batches=int(pieces),
            late=late, every=int(turn or 1),
        )  # fmt: skip
    kind, _, name = line.partition(" ")
    if kind == "function" and ":" in name:
        return GraphOrigin(kind="function", name=name)
    if kind == SAVED_MODEL:
        folder, _, signature = name.rpartition(" ")
        return GraphOrigin(kind=SAVED_MODEL, name=folder or name, variant=signature if folder else "")
    return GraphOrigin(kind="file", name=name) if kind == "file" else GraphOrigin(kind="other")
