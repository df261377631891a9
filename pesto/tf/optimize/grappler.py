"""TensorFlow's graph optimizer, run once and offline, without the rewrites that could change a result.

A plan holds for the graph that runs, and Grappler rewrites a step in the session, behind the plan's back. So it is run
first, its result is planned, and that runs with Grappler off.
"""

import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from pesto.core.errors import InputError, UsageError
from pesto.core.files.json import shown
from pesto.core.source import EVERYTHING, GRAPH_DEF, Source, file_source, model_source
from pesto.tf import models
from pesto.tf.nodes.fetches import checked_fetches, op_name
from pesto.tf.nodes.inline import flatten
from pesto.tf.nodes.needed_nodes import needed_names, sinks
from pesto.tf.nodes.shape_inference import infer_shapes
from pesto.tf.optimize.guards import guard_rounding, guard_sum_order, remove_guards
from pesto.tf.private import grappler_function
from pesto.tf.sources import sources
from pesto.tf.sources.callables import capture_callable
from pesto.tf.sources.graphdefs import read_graph_def

MERGE = ("common_subgraph_elimination",)
FOLD = ("pruning", "constfold", "shape", "dependency", "pruning")
"""Grappler's passes that are run, by turns; `docs/guides/grappler.md` says why not the others."""


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
    """The program that `source` names, optimized: its step, what `keep` names, and a built-in model's initializer.

    UsageError for options that do not go together, InputError and FileError as `optimize` and the readers of graphs.
    """
    source.checked()
    if source.file is not None and source.file.suffix not in GRAPH_DEF:
        raise UsageError.build(
            "only TensorFlow's graphs can be optimized", where=source.file, remedy="give a GraphDef, .pb or .pbtxt"
        )
    # What user code prints must not mix with what the command line prints.
    with redirect_stdout(sys.stderr):
        label, graph_def, fetches, init = _program(source)
    flat = flatten(graph_def)
    result = optimize(flat, fetches, [*init, *keep], source=label)
    names = tuple(dict.fromkeys(op_name(fetch) for fetch in fetches))
    return OptimizedGraph(
        source=label, graph_def=result, fetches=names, nodes=(len(flat.node), len(result.node)),
        step=(len(_pruned(flat, names).node), len(_pruned(result, names).node)),
    )  # fmt: skip


def _program(source: Source) -> tuple[str, Any, tuple[str, ...], tuple[str, ...]]:
    """(label, GraphDef, fetches, initializers)."""
    if source.model is not None:
        try:
            family, variant = models.find(source.model, source.variant)
            step = models.build(family.name, variant, source.batch)
        except ValueError as error:
            raise UsageError.build(f"model: {error}", remedy="see pesto models") from error
        label = model_source(family.name, variant, source.batch)
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
    """A GraphDef that computes what `graph_def` does, bit for bit, with fewer ops: calls inlined, Grappler applied.

    fetches, keep: names of ops or tensors; these ops keep their names, and what they do not need goes. Placeholders
    that they need stay. Devices stay; `pesto solve` does not read them. InputError, beginning with `source`, for an
    unknown name and for no fetch, and for a graph that TensorFlow refuses.
    """
    flat = flatten(graph_def)
    inferred = infer_shapes(flat)
    shapes = {node.name: node.attr["_output_shapes"].list.shape for node in inferred.node}
    outputs = {name: len(optimized) for name, optimized in shapes.items()}
    wanted = checked_fetches([*checked_fetches(fetches, outputs, source), *keep], outputs, source)
    step = _pruned(flat, wanted)
    names = [*wanted, *(node.name for node in step.node if node.op in ("Placeholder", "PlaceholderV2"))]
    optimized = step
    # Folding makes equal ops equal constants, which the next merge finds; a second round reaches a fixed point for
    # practical graphs.
    for passes in (MERGE, FOLD, MERGE, FOLD):
        optimized = _pass(optimized, passes, names, source)
    result = _pruned(optimized, names)
    _drop_dangling(result)
    infer_shapes(result)  # what does not load is refused now, not when it is planned
    return result


def _pass(graph_def: Any, passes: tuple[str, ...], names: list[str], source: str) -> Any:
    """`graph_def` after the passes, which see guards before whatever they would reorder."""
    guarded, stay = guard_sum_order(graph_def) if passes == MERGE else (guard_rounding(graph_def), [])
    try:
        optimized = run_grappler(guarded, passes, [*names, *stay])
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise InputError.build(
            f"TensorFlow's optimizer refuses it: {shown(error)}", where=source, remedy="plan it as it is"
        ) from error
    return remove_guards(optimized)


def run_grappler(graph_def: Any, passes: Sequence[str], keep: Sequence[str]) -> Any:
    """`graph_def` after Grappler's named passes, run twice over; the nodes named in `keep` stay."""
    config = tf.compat.v1.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.min_graph_nodes = -1
    rewrites.meta_optimizer_iterations = type(rewrites).TWO
    rewrites.fail_on_optimizer_errors = True
    rewrites.optimizers.extend(passes)
    meta = tf.compat.v1.MetaGraphDef(graph_def=graph_def)
    meta.collection_def["train_op"].node_list.value.extend(keep)  # where Grappler looks for what is fetched
    return grappler_function()(config, meta, verbose=False)


def _pruned(graph_def: Any, names: Iterable[str]) -> Any:
    """The nodes that `names` need, in the order they have, with versions and functions."""
    names_needed = needed_names({node.name: node for node in graph_def.node}, names)
    kept = graph_pb2.GraphDef(versions=graph_def.versions, library=graph_def.library)
    kept.node.extend(node for node in graph_def.node if node.name in names_needed)
    return kept


def _drop_dangling(graph_def: Any) -> None:
    """Remove colocations with nodes that are gone."""
    names = {f"loc:@{node.name}".encode() for node in graph_def.node}
    for node in graph_def.node:
        if "_class" in node.attr:
            where = node.attr["_class"].list.s
            where[:] = [w for w in where if w in names or not w.startswith(b"loc:@")]
            if not where:
                node.attr.pop("_class")
