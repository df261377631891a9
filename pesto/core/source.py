"""The graph to plan, as a user names it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from pesto.core.arguments import expect, expect_count
from pesto.core.errors import UsageError

GRAPH_DEF = (".pb", ".pbtxt", ".meta")
"""Endings of files with a GraphDef, in .meta within a MetaGraphDef; any other file is the project's own."""
EVERYTHING = ("*",)
"""The fetches that stand for all ops of a GraphDef that nothing reads."""
SAVED_MODEL = "SavedModel"
"""The beginning of the source of a graph that is one of these."""
MICRO_BATCHES = "micro-batches"
READ_SCOPE = "pesto_weights_"
"""Before the number of a variable, the scope of its reads by each batch in a step whose weights may be late."""
_MODEL = re.compile(rf"^model ([\w-]+) ([\w-]+)(?: batch (\d{{1,9}}))?(?:, (\d{{1,9}}) {MICRO_BATCHES})?$")
_UPDATED, _LATE = "batches, an update after", "weights late by"
_FUNCTION = re.compile(
    rf"^function (\S+?)(?: batch (\d{{1,9}}))?, (\d{{1,9}}) "
    rf"(?:{MICRO_BATCHES}|{_UPDATED} (?:each|every (\d{{1,9}})), {_LATE} "
    r"(0|\d{1,9}x\d{1,9}(?: \d{1,9}x\d{1,9})*))$"
)
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
    """One graph; exactly one of model, file, saved_model and function is given."""

    model: str | None = None
    variant: str | None = None
    file: Path | None = None
    fetch: tuple[str, ...] = ()
    saved_model: Path | None = None
    signature: str | None = None
    function: str | None = None
    batch: int | None = None
    micro_batches: int | None = None
    """So many of the step, with gradients added up before one update; None: the step as it is.

    Of a function they are pieces of its batch; of all else each has a batch of its own."""
    late: tuple[int, ...] | None = None
    """For a function, as `Cut.late`; None: gradients are added up."""
    every: int = 1
    """For a function, as `Cut.every`."""
    shape: tuple[str, ...] = ()
    """Shapes of feeds that the graph leaves open, and the largest of other ops, each as NAME=16,40."""

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


def is_file(label: str) -> bool:
    """Return True for the source of a graph that was read from a file, whose user may not have its program."""
    return label.startswith(("file ", f"{SAVED_MODEL} "))


def takes_shapes(label: str) -> bool:
    """Return True for the source of a graph whose shapes can be given: of a file, or a function of one batch."""
    function = label.startswith("function ") and ":" in label and cut_by(label) is None
    return is_file(label) or function


def model_label(model: str, variant: str, batch: int | None) -> str:
    """Return the source of a graph of a built-in model; `named_by` reads it back."""
    return f"model {model} {variant}" + (f" batch {batch}" if batch else "")


def check_cut(batch: int, pieces: int, label: str) -> None:
    """UsageError for a batch that so many micro-batches do not divide."""
    if batch % pieces:
        fitting = sorted({batch - batch % pieces, batch + pieces - batch % pieces} - {0})
        raise UsageError.build(
            f"a batch of {batch} cannot be cut into {pieces} equal micro-batches",
            where=label,
            remedy=(f"give a batch of {' or '.join(map(str, fitting))}, or another number of micro-batches"),
        )


def function_label(reference: str, batch: int | None, cut: Cut | None) -> str:
    """Return the source of the graph of a function; `cut_by` reads back what is said of micro-batches."""
    if cut is None:
        return f"function {reference}"
    turn = "each" if cut.every == 1 else f"every {cut.every}"
    how = MICRO_BATCHES if cut.late is None else f"{_UPDATED} {turn}, {_LATE} {_told(cut.late)}"
    return f"function {reference}" + (f" batch {batch}" if batch else "") + f", {cut.batches} {how}"


def _told(late: tuple[int, ...]) -> str:
    """Runs of equal numbers, such as 2x4 for four times 2."""
    return " ".join(f"{by}x{len(list(run))}" for by, run in groupby(late)) or "0"


def _late(told: str) -> tuple[int, ...] | None:
    """Read what `_told` wrote; None where it is of more variables than there can be."""
    runs = [tuple(map(int, run.split("x"))) for run in told.split()] if told != "0" else []
    if sum(count for _, count in runs) > _MOST_WEIGHTS:
        return None
    return tuple(by for by, count in runs for _ in range(count))


def cut_by(label: str) -> Source | None:
    """The function whose batch is cut that a label names; None for a graph that was not made so."""
    found = _FUNCTION.match(label)
    if not found:
        return None
    reference, batch, pieces, turn, told = found.groups()
    late, every = None if told is None else _late(told), int(turn or 1)
    if (told is not None and late is None) or every < 1 or int(pieces) % every:
        return None
    return Source(
        function=reference, batch=int(batch) if batch else None, micro_batches=int(pieces), late=late, every=every
    )  # fmt: skip


def named_by(label: str) -> Source | None:
    """The built-in model that a label names, or None when the graph came from elsewhere."""
    found = _MODEL.match(label)
    if not found:
        return None
    batch, micro_batches = (None if number is None else int(number) for number in found.groups()[2:])
    return Source(model=found.group(1), variant=found.group(2), batch=batch, micro_batches=micro_batches)
