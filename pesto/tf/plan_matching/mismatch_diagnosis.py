"""The one cause for which no plan is for a step: found by tracing the step with other types of arguments."""

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from pesto.core.errors import MismatchError, PestoError
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.plans.graph_differences import differences
from pesto.core.plans.plan import Plan
from pesto.tf.importer.importer import build_graph
from pesto.tf.nodes.batch_dimension import has_open_batch
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.placement_refusals import nested_function_error
from pesto.tf.plan_matching import argument_types
from pesto.tf.private import TraceRequest
from pesto.tf.sources.sources import capture_func_graph

_SIZE = 32
"""Batch size that stands for any: the structure of a graph does not depend on it."""
_SIZES = (1, 2, 4, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 512)
"""Batches that are planned most, tried where a plan of a fixed one is for another."""
_QUICK = 3000
"""Ops up to which a step is traced for each of these sizes."""
_SINGLES = 4
"""Tensors of one dtype that are tried one by one."""
_NEAR = 0.25
"""Share of a plan's ops up to which a step's may be more or fewer for its arguments to be the cause."""
_OTHERS = {
    tf.int64: (tf.int32,), tf.int32: (tf.int64,), tf.float64: (tf.float32,), tf.float32: (tf.float64, tf.float16),
    tf.float16: (tf.float32,), tf.uint8: (tf.float32, tf.int32), tf.bool: (tf.float32, tf.int32),
}  # fmt: skip
"""dtype -> what a tensor may have been planned as."""


_OPEN = (
    "its batch is open, as of arrays whose last batch is smaller, the plan's is of one fixed size - plan it open, "
    "which is for both: from_keras(model, batch=32) without static=True, or pesto.record(batch=32) of such a fit; or "
    "train on whole batches (drop_remainder=True)"
)
_MORE = (
    "it has an input more than the plan, {}: weights of the examples, from sample_weight or class_weight of fit - "
    "leave them out, or plan with them: from_keras(model, batch, data=(x, y, sample_weight)), or pesto.record"
)
_FEWER = (
    "the plan has an input more, {}: weights of the examples - give fit sample_weight or class_weight as planned, or "
    "plan without them"
)
_SIZED = (
    "its ops are the plan's, of other sizes: its batch is {0}, that of the plan may be fixed at another - train with "
    "batches as planned, or plan up to {0}, of a tf.function whose input_signature leaves the first dimension open "
    "(None), with batch={0}"
)
Variant = tuple[Any, str]
"""Other types of arguments (a FunctionType), and what is to be said if the plan is for the step with those."""


class UnmatchedStepError(MismatchError):
    """A training function as it was traced is of no plan; it may be as it is traced otherwise."""

    def __init__(self, text: str, graph: Graph) -> None:
        """Take the message for an unknown cause, and the graph of the trace."""
        super().__init__(text)
        self.graph = graph


def trace_for_plan(tracing: TraceRequest, plans: Sequence[Plan]) -> Any:
    """The ConcreteFunction of a trace, with its batch left open where only then a plan is for it.

    MismatchError that names the one cause where none is: a larger batch, an open or fixed one, weights of examples, a
    dtype, else the ops that are more or fewer.
    """
    try:
        return tracing.create(tracing.signature)
    except UnmatchedStepError as error:
        unfit = error
    base = tracing.signature
    largest = max((p.provenance.graph_batch or 0 for p in plans), default=0)
    opened = argument_types.open_batch(base)
    if largest and opened is not None:
        size, base = opened
        # A larger batch would run, since the step is traced open, but the plan's peaks of memory do not hold for it.
        if size > largest and _has_plan(_build_variant(tracing, base, largest), plans):
            raise MismatchError(describe_larger_batch(size, largest))
        try:
            return tracing.create(base)
        except UnmatchedStepError as error:
            unfit = error
        except PestoError:
            raise
        except Exception:  # a step that needs to know its batch is traced as it was
            base = tracing.signature
    # Tracing with other argument types is expensive and runs user code again, so causes are searched only after no plan
    # was found, the likely ones first.
    raise MismatchError(_diagnose(tracing, base, plans, unfit)) from None


def stand_in_batch(captured: CapturedStep) -> int | None:
    """A size for the open batch of a step, to tell it from that of a plan of one fixed size; None where it is fixed."""
    return _SIZE if has_open_batch(captured.graph_def) else None


def describe_larger_batch(size: object, planned: object) -> str:
    """Return the message for a batch larger than planned, for which the plan's peaks of memory do not hold."""
    return (
        f"a batch of {size} is larger than the {planned} that were planned, for which its peaks of memory hold - plan "
        f"with batch={size}, or train with batches of at most {planned} (smaller ones run by the same plan)"
    )


def _diagnose(tracing: TraceRequest, base: Any, plans: Sequence[Plan], unfit: UnmatchedStepError) -> str:
    # Argument types change few ops. A plan of a very different size is for another step, and retracing for it would
    # only cost time.
    near = [p for p in plans if abs(len(p.names) - unfit.graph.ops) <= _NEAR * len(p.names)]
    for plan in near:
        for signature, said in _variants(tracing, base, plan, unfit):
            graph = _build_variant(tracing, signature, plan.provenance.graph_batch)
            if graph is not None and _explains(graph, unfit.graph, plan):
                return f"{tracing.label}: {said}"
    opened = argument_types.open_batch(base)
    if opened is not None and any(_fixed_like(plan, unfit.graph) for plan in near):
        return f"{tracing.label}: {_SIZED.format(opened[0])}"
    return (
        str(nested_function_error(f"function {tracing.around}", tracing.function)) if _called(tracing) else str(unfit)
    )


def _fixed_like(plan: Plan, graph: Graph) -> bool:
    """Return True if a plan has a fixed batch and, except for sizes, the structure of this graph."""
    made = plan.provenance
    return made.graph_batch is None and made.graph_layout == graph.layout()


def _called(tracing: TraceRequest) -> bool:
    """Return True if a function of the user calls the traced one; Keras' own do so in `fit`."""
    return tracing.around is not None and tracing.function != argument_types.FIT


def _variants(tracing: TraceRequest, base: Any, plan: Plan, unfit: UnmatchedStepError) -> Iterator[Variant]:
    batch = plan.provenance.graph_batch
    closed = argument_types.fix_batch(base, _SIZE) if batch is None else None
    if closed is not None:
        yield closed, _OPEN
    for name, given, signature in argument_types.toggle_weights(base):
        yield signature, (_MORE if given else _FEWER).format(f"{name}[2]")
    yield from _dtype_variants(base, tracing.function, batch or _SIZE)
    cut = plan.provenance.graph_origin.cut_function
    if cut is not None and cut.batch:
        yield from _size_variants(base, (cut.batch,))
    elif batch is None and unfit.graph.ops <= _QUICK:
        yield from _size_variants(base, _SIZES)


def _dtype_variants(base: Any, function: str, batch: int) -> Iterator[Variant]:
    """All tensors of a dtype with another, then one after the other."""
    kinds: dict[Any, list[str]] = {}
    for name, spec in argument_types.tensor_specs(base).items():
        kinds.setdefault(spec.dtype, []).append(name)
    for dtype, names in kinds.items():
        for other in _OTHERS.get(dtype, ()):
            for some in dict.fromkeys((tuple(names), *((name,) for name in names[:_SINGLES]))):
                what = " and ".join(shown(argument_types.describe_argument(name, function)) for name in some)
                said = (
                    f"{what} {'is' if len(some) == 1 else 'are'} {dtype.name}, planned as {other.name} - give "
                    f"{other.name}, or plan with the types that it trains on: from_keras(model, batch={batch}, "
                    f"data=(x, y)), or pesto.record(batch={batch})"
                )
                yield argument_types.change_dtype(base, some, other), said


def _size_variants(base: Any, sizes: Sequence[int]) -> Iterator[Variant]:
    opened = argument_types.open_batch(base)
    if opened is None:
        return
    own, types = opened
    for size in sizes:
        said = f"its batch is {own}, the plan's is fixed at {size} - train with batches of {size}, or plan batch={own}"
        yield argument_types.fix_batch(types, size), said


def _build_variant(tracing: TraceRequest, signature: Any, batch: int | None) -> Graph | None:
    """The graph of the step with arguments of these types; None when it has none."""
    try:
        return build_graph(capture_func_graph(tracing.graph(signature), tracing.label), batch=batch)
    except Exception:  # whatever the user's code raises of what it was not written for
        return None


def _has_plan(graph: Graph | None, plans: Sequence[Plan]) -> bool:
    return graph is not None and graph.fingerprint() in [p.provenance.graph_fingerprint for p in plans]


def _explains(graph: Graph, was: Graph, plan: Plan) -> bool:
    """Return True if a plan is for `graph`, or matches its structure but not that of the original trace `was`."""
    made = plan.provenance
    if made.graph_fingerprint == graph.fingerprint():
        return True
    return was.layout() != made.graph_layout == graph.layout()


def unmatched_step_error(graph: Graph, plans: Sequence[Plan], label: str, inputs: Any) -> UnmatchedStepError:
    """A training function that none of the plans is for, held against the plan of about as many ops."""
    plan = min(plans, key=lambda p: abs(len(p.names) - graph.ops))
    made = plan.provenance
    given = ", ".join(_shape(spec) for spec in tf.nest.flatten(inputs) if isinstance(spec, tf.TensorSpec))
    return UnmatchedStepError(
        f"{label} trains variables and is of no plan: {differences(plan.names, made.graph_batch, graph)} (this step "
        f"has {graph.ops} ops and as inputs {given or 'none'}, the plan of {shown(made.graph_source)} has "
        f"{len(plan.names)} ops) - {_remedy(plan)}plan this step (pesto.record takes it from the program itself), or "
        "run it outside pesto.apply",
        graph,
    )


def _remedy(plan: Plan) -> str:
    """Return an additional remedy for a plan whose step cuts its batch."""
    return "" if plan.provenance.graph_origin.cut_function is None else "call pesto.pipeline(step, plan) in its place, "


def _shape(spec: Any) -> str:
    rank = spec.shape.rank
    shape = "?" if rank is None else ", ".join("?" if d is None else str(d) for d in spec.shape)
    return f"{spec.dtype.name} [{shape}]"
