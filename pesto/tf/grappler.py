"""TensorFlow's graph optimizer, run once and offline, without the rewrites that could change a result.

A plan holds for the graph that runs, and Grappler rewrites a step in the session, behind the plan's back. So it is run
first, its result is planned, and that runs with Grappler off. Guards, ops before float arithmetic, keep it from
rewriting that into something that rounds differently.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import shown
from pesto.core.source import EVERYTHING, GRAPH_DEF, Source, file_source
from pesto.tf.named_sources import build_model
from pesto.tf.nodes.graph_def_bytes import check_fetches, op_name
from pesto.tf.nodes.inline import flatten
from pesto.tf.nodes.needed_nodes import find_needed_names, is_known, producer, sinks
from pesto.tf.nodes.shape_inference import infer_shapes
from pesto.tf.private import grappler_function, op_def
from pesto.tf.sources import sources
from pesto.tf.sources.callables import capture_callable
from pesto.tf.sources.sources import read_graph_def
from pesto.tf.variables.variables import bytes_of

MERGE = ("common_subgraph_elimination",)
FOLD = ("pruning", "constfold", "shape", "dependency", "pruning")
"""Grappler's passes that are run, by turns; `docs/guides/grappler.md` says why not the others."""
_GUARD = "pesto_guard/"
_SUMS = ("AddN", "AccumulateNV2")
_REORDERED = (*_SUMS, "Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "Xdivy", "BiasAdd")
_BY_SHAPE = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")
_FLOW = ("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond")
_FOLDED_BYTES = 64 * 1024
"""Grappler folds what makes up to 100 KiB; below that with room to spare, an op counts as one that will be folded."""
_WIDEST = tf.complex128.as_datatype_enum


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptimizedGraph:
    """A program's graph after `optimize`."""

    source: str
    """Source of the graph, for people."""
    graph_def: Any
    fetches: tuple[str, ...]
    """Names of the ops that the step ends with."""
    nodes: tuple[int, int]
    """Number of nodes before and after, functions inlined."""
    step: tuple[int, int]
    """Number of nodes before and after that the fetches need."""


def optimize_source(source: Source, keep: tuple[str, ...] = ()) -> OptimizedGraph:
    """Optimize the program that `source` names: its step, what `keep` names, and a built-in model's initializer.

    Raise UsageError for options that do not go together, InputError and FileError as `optimize` and the readers of
    graphs.
    """
    source.checked()
    if source.file is not None and source.file.suffix not in GRAPH_DEF:
        raise UsageError.build(
            "only TensorFlow's graphs can be optimized", where=source.file, remedy="give a GraphDef, .pb or .pbtxt"
        )
    # What user code prints must not mix with what the command line prints.
    with redirect_stdout(sys.stderr):
        label, graph_def, fetches, init = _load_program(source)
    flat = flatten(graph_def)
    result = optimize(flat, fetches, [*init, *keep], source=label)
    names = tuple(dict.fromkeys(op_name(fetch) for fetch in fetches))
    return OptimizedGraph(
        source=label, graph_def=result, fetches=names, nodes=(len(flat.node), len(result.node)),
        step=(len(_prune(flat, names).node), len(_prune(result, names).node)),
    )  # fmt: skip


def _load_program(source: Source) -> tuple[str, Any, tuple[str, ...], tuple[str, ...]]:
    """Return (label, GraphDef, fetches, initializers)."""
    if source.model is not None:
        step, label = build_model(source)
        return label, step.graph.as_graph_def(), step.fetches, (step.init,)
    if source.file is not None:
        graph_def = read_graph_def(source.file)
        named = () if source.fetch == EVERYTHING else source.fetch
        return file_source(shown(source.file.name)), graph_def, named or sinks(graph_def), ()
    if source.saved_model is not None:
        captured = sources.capture_saved_model(source.saved_model, source.signature)
    else:
        captured = capture_callable(source.function or "", source.batch)
    return captured.source, captured.graph_def, captured.fetches, ()


def optimize(graph_def: Any, fetches: Iterable[str], keep: Iterable[str] = (), *, source: str = "graph") -> Any:
    """Return a GraphDef that computes the same, bit for bit, with fewer ops: calls inlined, Grappler applied.

    fetches, keep: names of ops or tensors; these ops keep their names, and what they do not need goes. Placeholders
    that they need stay. Devices stay; `pesto solve` does not read them. Raise InputError, beginning with `source`, for
    an unknown name and for no fetch, and for a graph that TensorFlow refuses.
    """
    flat = flatten(graph_def)
    inferred = infer_shapes(flat)
    outputs = {node.name: len(node.attr["_output_shapes"].list.shape) for node in inferred.node}
    wanted = check_fetches([*check_fetches(fetches, outputs, source), *keep], outputs, source)
    optimized = _prune(flat, wanted)
    names = [*wanted, *(node.name for node in optimized.node if node.op in ("Placeholder", "PlaceholderV2"))]
    # Folding makes equal ops equal constants, which the next merge finds; a second round reaches a fixed point for
    # practical graphs.
    for passes in (MERGE, FOLD, MERGE, FOLD):
        guarded, stay = guard_sum_order(optimized) if passes == MERGE else (guard_rounding(optimized), [])
        try:
            rewritten = run_grappler(guarded, passes, [*names, *stay])
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
            raise InputError.build(
                f"TensorFlow's optimizer refuses it: {shown(error)}", where=source, remedy="plan it as it is"
            ) from error
        optimized = remove_guards(rewritten)
    result = _prune(optimized, names)
    # Colocations with nodes that are gone go too.
    left = {f"loc:@{node.name}".encode() for node in result.node}
    for node in result.node:
        if "_class" in node.attr:
            where = node.attr["_class"].list.s
            where[:] = [w for w in where if w in left or not w.startswith(b"loc:@")]
            if not where:
                node.attr.pop("_class")
    infer_shapes(result)  # what does not load is refused now, not when it is planned
    return result


def run_grappler(graph_def: Any, passes: Sequence[str], keep: Sequence[str]) -> Any:
    """Return `graph_def` after Grappler's named passes, run twice over; the nodes named in `keep` stay."""
    config = tf.compat.v1.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.min_graph_nodes = -1
    rewrites.meta_optimizer_iterations = type(rewrites).TWO
    rewrites.fail_on_optimizer_errors = True
    rewrites.optimizers.extend(passes)
    meta = tf.compat.v1.MetaGraphDef(graph_def=graph_def)
    meta.collection_def["train_op"].node_list.value.extend(keep)  # where Grappler looks for what is fetched
    return grappler_function()(config, meta, verbose=False)


def _prune(graph_def: Any, names: Iterable[str]) -> Any:
    """Return the nodes that `names` need, in the order they have, with versions and functions."""
    names_needed = find_needed_names({node.name: node for node in graph_def.node}, names)
    pruned = graph_pb2.GraphDef(versions=graph_def.versions, library=graph_def.library)
    pruned.node.extend(node for node in graph_def.node if node.name in names_needed)
    return pruned


def guard_sum_order(graph_def: Any) -> tuple[Any, list[str]]:
    """Return a copy whose sums keep the order of their terms, and the guards that see to it.

    Merging equal ops sorts the inputs of commutative ops by name. With two terms that changes nothing; of more, the
    sum is rounded differently. So each term goes through a guard, and the guards' names sort as the terms stand.
    """
    copy = graph_pb2.GraphDef()
    copy.CopyFrom(graph_def)
    stay = []
    for i, node in enumerate(graph_def.node):
        # Grappler sorts the inputs of commutative ops by name to find duplicates. Floating-point sums of more than two
        # terms depend on the order.
        if node.op in _SUMS and _depends_on_order(node):
            for slot, text in enumerate(_split_inputs(node)):
                stay.append(_add_guard(copy, f"{_GUARD}{i:08d}/{slot:08d}", text, node))
                copy.node[i].input[slot] = stay[-1]
    return copy, stay


def guard_rounding(graph_def: Any) -> Any:
    """Return a copy in which constant folding cannot see what real arithmetic gets, unless all of it is constant.

    It would turn x / 3 into x * (1 / 3) and (x + a) + b into x + (a + b), which are rounded differently.
    """
    copy = graph_pb2.GraphDef()
    copy.CopyFrom(graph_def)
    shapes = {node.name: node.attr["_output_shapes"].list.shape for node in infer_shapes(graph_def).node}
    constant = _find_constants(graph_def, shapes)
    guards: dict[str, str] = {}
    for i, node in enumerate(graph_def.node):
        data = _split_inputs(node)
        # If all inputs are constant, folding evaluates the op itself and rounds as the op would.
        if not _depends_on_order(node) or all(producer(text) in constant for text in data):
            continue
        for slot, text in enumerate(data):
            if text not in guards:
                op, _, k = text.partition(":")
                guards[text] = _add_guard(copy, f"{_GUARD}{len(guards):08d}", text, node, shapes[op][int(k or 0)])
            copy.node[i].input[slot] = guards[text]
    return copy


def _add_guard(graph_def: Any, name: str, text: str, reader: Any, shape: Any = None) -> str:
    """Add an op that hands on the tensor `text` and that no pass removes, folds or sees through; its name."""
    node = graph_def.node.add(name=name, op="PlaceholderWithDefault", input=[text], device=reader.device)
    node.attr["dtype"].type = reader.attr["T"].type
    if shape is None:
        node.attr["shape"].shape.unknown_rank = True
    else:
        node.attr["shape"].shape.CopyFrom(shape)
    return name


def _split_inputs(node: Any) -> list[str]:
    return [text for text in node.input if text[0] != "^"]


def _depends_on_order(node: Any) -> bool:
    """Return True if the result depends on the order of the arithmetic."""
    if node.op not in _REORDERED:
        return False
    dtype = tf.as_dtype(node.attr["T"].type)
    return bool(dtype.is_floating or dtype.is_complex)


def _find_constants(graph_def: Any, shapes: dict[str, Any]) -> set[str]:
    """Return the names of the ops whose outputs do not change from step to step and are small enough to be folded."""
    data = {node.name: [producer(text) for text in _split_inputs(node)] for node in graph_def.node}
    foldable = set()
    for node in graph_def.node:
        definition, flow = op_def(node.op), node.op.removeprefix("Ref") in _FLOW
        if definition is None or definition.is_stateful or flow or node.op.startswith("Placeholder"):
            continue
        # The widest element there is: the type of each output is not at hand.
        small = [_is_static(s) and bytes_of(_WIDEST, _find_sizes(s)) <= _FOLDED_BYTES for s in shapes[node.name]]
        if all(small) and not any(argument.is_ref for argument in definition.input_arg):
            foldable.add(node.name)
    readers: defaultdict[str, list[str]] = defaultdict(list)
    for name, inputs in data.items():
        for op in inputs:
            readers[op].append(name)
    sized = {name for name, inputs in data.items() if all(_is_static(s) for op in inputs for s in shapes[op])}
    left = [n.name for n in graph_def.node if n.op == "Const" or (n.op in _BY_SHAPE and n.name in sized)]
    missing = {name: len(inputs) for name, inputs in data.items()}
    constants: set[str] = set()
    while left:
        name = left.pop()
        if name in constants or name not in foldable:
            continue
        constants.add(name)
        for reader in readers[name]:
            missing[reader] -= 1
            if not missing[reader]:
                left.append(reader)
    return constants


def _is_static(shape: Any) -> bool:
    return not shape.unknown_rank and is_known(_find_sizes(shape))


def _find_sizes(shape: Any) -> tuple[int, ...]:
    return tuple(d.size for d in shape.dim)


def remove_guards(graph_def: Any) -> Any:
    """Return `graph_def` with what the guards guard in their place."""
    guards = {node.name: node for node in graph_def.node if node.name.startswith(_GUARD)}
    bare = graph_pb2.GraphDef(versions=graph_def.versions, library=graph_def.library)
    for node in graph_def.node:
        if node.name in guards:
            continue
        own = bare.node.add()
        own.CopyFrom(node)
        data: list[str] = []
        controls: list[str] = []
        for text in node.input:
            source, waits = text, list[str]()
            while producer(source) in guards:
                first, *rest = guards[producer(source)].input
                source = f"^{producer(first)}" if text[0] == "^" else first
                waits += rest
            (controls if text[0] == "^" else data).append(source)
            controls += waits
        own.input[:] = [*data, *dict.fromkeys(controls)]
    return bare
