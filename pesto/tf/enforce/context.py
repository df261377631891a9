"""`apply` and `place` run programs by a plan, `pipeline` runs them in micro-batches, `record` captures their step.

All work by hooks on stock TensorFlow that hold while a context is open or a call lasts.
"""

import contextlib
import functools
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, TypeVar

import keras
import tensorflow as tf

from pesto.core.errors import InputError, MismatchError, UsageError
from pesto.core.files.json import shown
from pesto.core.graph import Graph
from pesto.core.plans.plan import Plan
from pesto.core.source import Cut
from pesto.tf import placement_refusals, private
from pesto.tf.apply_placement.targets import ApplyOptions, device_targets, refuse_old_plan
from pesto.tf.enforce.functions import FunctionEnforcement, refuse_gradients_only, require_functions, trains
from pesto.tf.enforce.partitions import Findings
from pesto.tf.enforce.sessions import SessionEnforcement
from pesto.tf.importer.importer import build_graph
from pesto.tf.nodes.captured import CapturedStep
from pesto.tf.nodes.inline import inline_keras_2
from pesto.tf.pipelined.in_micro_batches import (
    convert_control_flow,
    fit_in_micro_batches,
    in_micro_batches,
    train_in_micro_batches,
)
from pesto.tf.selftest import self_test
from pesto.tf.sources.keras_step import build_variables
from pesto.tf.sources.sources import capture_func_graph


@dataclass(frozen=True, slots=True, eq=False)
class AppliedPlans:
    """Record of applied plans; it grows while the context is open."""

    functions: FunctionEnforcement
    """Inside: hooks for tf.functions, and the functions that run by the plans."""
    sessions: SessionEnforcement
    """Inside: hooks for v1 sessions, and the sessions that run by the plans."""
    token: str
    """Key that separates traces made for these plans from all others."""

    @property
    def findings(self) -> list[Findings]:
        """One entry for each step that was run for the first time, in the order of the runs."""
        return [*self.functions.findings, *self.sessions.findings]

    @property
    def ops(self) -> int:
        """Ops whose device and order were verified, over all of `findings`."""
        return sum(f.ops for f in self.findings)


def apply(plans: tuple[Plan, ...], options: ApplyOptions) -> contextlib.AbstractContextManager[AppliedPlans]:
    """Return a context in which everything that trains runs by one of `plans` or is refused; leaving undoes it.

    Sessions must be opened, and functions called, inside. Raise UsageError without a plan, MismatchError when nothing
    inside was a planned step, and what `refuse_old_plan` and `device_targets` raise, before the context is entered.
    """
    if not plans:
        raise UsageError.build("apply: no plan is given", remedy="give one for each training step")
    for plan in plans:
        refuse_old_plan(plan)
        device_targets(plan, options.devices)

    # The body of a generator context runs at entry; the checks above are due at the call.
    @contextlib.contextmanager
    def opened() -> Iterator[AppliedPlans]:
        applied = _apply_plans(plans, options)
        with _install_hooks(applied), fit_in_micro_batches(plans):
            yield applied
        if not applied.findings:
            raise MismatchError.build(
                f"nothing ran by the plan of {plans[0].provenance.graph_source}: no session and no tf.function ran "
                "that trains",
                remedy="put the training inside the context",
            )

    return opened()


def place(fn: Callable[..., Any], plan: Plan, options: ApplyOptions) -> Callable[..., Any]:
    """Return `fn`, a step as a tf.function or plain function, placed and ordered; for training loops of one's own.

    Its variables move to their planned devices when it is first called, and stay there. Its attribute `applied` is the
    AppliedPlans record of what was verified. Calls from several threads wait for each other. Raise UsageError when `fn`
    is no function, is traced already, or is called by another tf.function; InputError when XLA must compile it, or a
    device is missing.
    """
    from pesto.tf.nodes.inline import inline_python_calls

    if not callable(fn):
        raise UsageError.build(f"place: {type(fn).__name__} is no step", remedy="give a function or a tf.function")
    if isinstance(fn, tf.types.experimental.ConcreteFunction):
        raise placement_refusals.concrete_function_error("place")
    if private.jit_of(fn):
        raise placement_refusals.xla_error("place")
    step = tf.function(
        inline_python_calls(getattr(fn, "python_function", fn)),
        input_signature=getattr(fn, "input_signature", None),
        autograph=private.autograph_of(fn),
    )
    refuse_old_plan(plan)
    applied = _apply_plans((plan,), options)
    applied.functions.find_targets(plan)

    @functools.wraps(getattr(fn, "python_function", fn))
    def placed(*args: Any, **kwargs: Any) -> Any:
        if not tf.executing_eagerly():
            raise UsageError.build(
                "place: the step is called while another function is traced", remedy="call it from eager code"
            )
        with _install_hooks(applied, keep=True):
            return step(*args, **kwargs)

    # A function object has a __dict__; assigning through vars keeps type checkers content.
    vars(placed)["applied"] = applied
    return placed


def _apply_plans(plans: tuple[Plan, ...], options: ApplyOptions) -> AppliedPlans:
    self_test()
    functions = FunctionEnforcement(plans=plans, options=options)
    sessions = SessionEnforcement(plans=plans, options=options)
    return AppliedPlans(functions=functions, sessions=sessions, token=f"pesto {uuid.uuid4()}")


@contextlib.contextmanager
def _install_hooks(applied: AppliedPlans, *, keep: bool = False) -> Iterator[None]:
    """Install all hooks and settings; on leaving, everything is undone, but with `keep` variables stay moved."""
    functions = applied.functions.hooks(applied.token, keep=keep)
    with lock_process(wait=keep), functions, applied.sessions.hooks(keep=keep):
        yield


_LOCK = threading.Lock()
"""Serializes contexts, since their settings belong to the whole process."""
_HOLDER = threading.local()


@contextlib.contextmanager
def lock_process(*, wait: bool) -> Iterator[None]:
    """Lock the process. Raise UsageError when this thread has it already, or another has and `wait` is False."""
    if getattr(_HOLDER, "holds", False) or not _LOCK.acquire(blocking=wait):
        raise UsageError.build("a plan is being applied already", remedy="give all plans to one pesto.apply")
    _HOLDER.holds = True
    try:
        yield
    finally:
        _HOLDER.holds = False
        _LOCK.release()


T = TypeVar("T")


class SingleUseContext(AbstractContextManager[T], Generic[T]):
    """A context around another; UsageError, with the call that makes a fresh one, when it is entered again."""

    def __init__(self, call: str, context: AbstractContextManager[T]) -> None:
        self._call, self._context, self._entered = call, context, False

    def __enter__(self) -> T:
        """Enter, the first time."""
        if self._entered:
            raise UsageError.build(
                "this context was entered before", where=self._call, remedy=f"call {self._call} for each with"
            )
        self._entered = True
        return self._context.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Leave."""
        return self._context.__exit__(kind, value, trace)


_OF_DATASETS = "function Dataset_"
"""Prefix of TensorFlow's names for functions made of the body of a loop over a dataset."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedSteps:
    """The training functions that were traced while `record` was open."""

    batch: int | None
    """Examples in a batch where the program leaves the first dimension open; None where it does not."""
    captured: list[CapturedStep] = field(default_factory=list)
    """Inside: captured traces in their order; a function may be traced more than once."""

    @property
    def graph(self) -> Graph:
        """Graph of the one training step; InputError when there was none or several."""
        names = list(dict.fromkeys(captured.source for captured in self.captured))
        inside = [name for name in names if name.startswith(_OF_DATASETS)]
        if inside:
            around = next((name for name in names if name not in inside), "a function")
            raise placement_refusals.dataset_loop_error(f"record: {around}")
        if len(names) != 1:
            remedy = (
                "record each in a context of its own, and plan the second beside the first plan, "
                "pesto.solve(graph, beside=plan); or make one tf.function that calls them as plain Python functions"
                if names
                else "run a training step"
            )
            listed = ", ".join(names) or "none"
            raise InputError.build(f"record: one training function was to be traced, found {listed}", remedy=remedy)
        graphs = {graph.fingerprint(): graph for graph in (build_graph(c, batch=self.batch) for c in self.captured)}
        if len(graphs) != 1:
            sizes = " and ".join(f"{graph.ops} ops ({key[:12]})" for key, graph in graphs.items())
            raise InputError.build(
                f"record: {names[0]} was traced as {len(graphs)} different training steps, of {sizes}",
                remedy="run one of them, once, on data of one size",
            )
        return graphs.popitem()[1]

    def on_graph(self, graph: Any) -> None:
        """Keep a FuncGraph that trains; raise InputError for one that no plan could be applied to."""
        if private.is_body(graph):
            return
        label = private.label_of(graph)
        refuse_gradients_only(graph, label)
        if trains(graph):
            placement_refusals.check_graph(graph, label)
            self.captured.append(capture_func_graph(graph, label))

    def on_trace(self, tracing: private.TraceRequest) -> Any:
        """Trace a function as `apply` does."""
        with inline_keras_2(tracing):
            return tracing.create(tracing.signature)


@contextlib.contextmanager
def record(batch: int | None) -> Iterator[RecordedSteps]:
    """Capture the training steps that are traced inside; `batch` stands in for an open first dimension.

    Raise InputError or UsageError for a step or a setting that no plan can hold for.
    """
    placement_refusals.check_process()
    recorded = RecordedSteps(batch=batch)
    with contextlib.ExitStack() as stack:
        stack.enter_context(require_functions())
        stack.enter_context(private.watch_traces(recorded.on_graph, lambda _: None))
        stack.enter_context(private.intercept_traces(recorded.on_trace))
        stack.enter_context(private.separate_traces(f"pesto record {uuid.uuid4()}"))
        yield recorded


def pipeline(step: Any, plan: Plan, options: ApplyOptions) -> Callable[..., Any]:
    """Return `step`, a compiled Keras model or a function, in the plan's micro-batches, placed and ordered.

    A model's step is called as `step(x, y)` or `step(x, y, sample_weight)` and returns the loss of that batch, the mean
    over its micro-batches. A function that loops over micro-batches itself is placed as it is. Raise UsageError for a
    model without micro-batches in its plan, and what `place` raises.
    """
    cut = plan.provenance.graph_origin.cut_function
    if not isinstance(step, keras.Model):
        if cut is None or not callable(step) or hasattr(step, "structured_outputs"):
            return place(step, plan, options)
        label = f"function {getattr(step, '__name__', 'step')}"
        divided_step = in_micro_batches(convert_control_flow(step), cut.cut or Cut(1), label)
        signature = getattr(step, "input_signature", None)
        return place(tf.function(divided_step, input_signature=signature, autograph=False), plan, options)
    if cut is None:
        raise UsageError.build(
            f"pipeline: the plan of {shown(plan.provenance.graph_source)} is for no model that cuts its batch",
            remedy="make one by pesto pipeline, of the model as a function and a number of micro-batches, or train in "
            "pesto.apply",
        )
    # As fit does: run of the default strategy calls train_step with AutoGraph off, so the trace is the planned one.
    model, default = step, tf.distribute.get_strategy()
    train = train_in_micro_batches(model, cut.cut or Cut(1))

    def train_step(data: Any) -> Any:
        return default.run(train, args=(data,))

    placed = place(tf.function(train_step, autograph=False), plan, options)

    def pipelined(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        arguments = (x,) if y is None else (x, y) if sample_weight is None else (x, y, sample_weight)
        data = tf.nest.map_structure(tf.convert_to_tensor, arguments)
        # fit casts reals to Keras' own precision; another dtype would be another step.
        data = tf.nest.map_structure(lambda t: tf.cast(t, keras.config.floatx()) if t.dtype.is_floating else t, data)
        build_variables(model, data)
        # Metrics accumulate over an epoch in fit; a caller of this step gets those of its batch.
        model.reset_metrics()
        logs = placed(data)
        return logs.get("loss", logs) if isinstance(logs, dict) else logs

    vars(pipelined)["applied"] = vars(placed)["applied"]
    return pipelined
