"""`apply` and `place`: stock TensorFlow runs unchanged programs by a plan."""

import contextlib
import functools
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from pesto.core.errors import MismatchError, UsageError
from pesto.core.plans.plan import Plan
from pesto.core.source import Cut
from pesto.tf import placement_refusals, private
from pesto.tf.apply_placement.placement import refuse_older
from pesto.tf.apply_placement.targets import device_targets
from pesto.tf.enforce import training
from pesto.tf.enforce.apply_options import ApplyOptions
from pesto.tf.enforce.functions import FunctionEnforcement
from pesto.tf.enforce.partitions import Findings
from pesto.tf.enforce.process_settings import exclusive_use, plan_settings
from pesto.tf.enforce.sessions import SessionEnforcement
from pesto.tf.pipelined.in_micro_batches import train_in_micro_batches
from pesto.tf.selftest import self_test

# Keras' `fit` in the micro-batches of plans.


@contextlib.contextmanager
def fit_in_micro_batches(plans: Sequence[Plan]) -> Iterator[None]:
    """Make `fit` and train_on_batch of Keras models use the micro-batches of these plans, if they have any.

    UsageError where some plans have other micro-batches than others.
    """
    cut = _common_cut(plans)
    if cut is None:
        yield
        return
    # Keras picks its trainer class by backend; the class that defines the method is patched, so that subclasses which
    # override it keep their own.
    trainer = next(kind for kind in keras.Model.__mro__ if "make_train_function" in vars(kind))
    original, made = trainer.make_train_function, weakref.WeakSet[Any]()

    def make(model: Any, force: bool = False) -> Any:
        if model in made and not force:
            return None
        # make_train_function reads model.train_step once and closes over it, so the replacement is needed only during
        # this call.
        before = dict(vars(model))
        vars(model)["train_step"] = train_in_micro_batches(model, cut)
        try:
            return original(model, force=True)
        finally:
            del vars(model)["train_step"]
            vars(model).update({name: before[name] for name in ("train_step",) if name in before})
            made.add(model)

    trainer.make_train_function = make
    try:
        yield
    finally:
        trainer.make_train_function = original
        for model in made:
            # Keras caches the compiled train function; without this, training after the context would still cut the
            # batch.
            model.train_function = None


def _common_cut(plans: Sequence[Plan]) -> Cut | None:
    """Return the micro-batch cut that all of these plans share."""
    made = [plan.provenance.graph_origin.cut_function for plan in plans]
    every = {None if one is None else one.cut for one in made}
    if len(every) > 1:
        said = " and ".join(sorted({"none" if cut is None else str(cut.batches) for cut in every}))
        said = said if " and " in said else f"{said}, updated in several ways,"
        raise UsageError.build(
            f"apply: these plans have {said} micro-batches", remedy="apply each in a context of its own"
        )
    return next(iter(every), None)


@dataclass(frozen=True, slots=True, eq=False)
class AppliedPlans:
    """Record of applied plans; it grows while the context is open."""

    functions: FunctionEnforcement
    """Inside: the tf.functions that run by the plans."""
    sessions: SessionEnforcement
    """Inside: the v1 sessions that run by the plans."""
    token: str
    """Marks what tf.functions trace for these plans."""

    @property
    def findings(self) -> list[Findings]:
        """One entry for each step that was run for the first time, in the order of the runs."""
        return [*self.functions.findings, *self.sessions.findings]

    @property
    def ops(self) -> int:
        """Ops whose device and order were verified, over all of `findings`."""
        return sum(f.ops for f in self.findings)


def apply(plans: tuple[Plan, ...], options: ApplyOptions) -> contextlib.AbstractContextManager[AppliedPlans]:
    """Everything that trains inside runs by one of `plans`, or is refused; leaving undoes it.

    Sessions must be opened, and functions called, inside. UsageError without a plan, and what `device_targets` raises;
    MismatchError when nothing inside was a planned step.
    """
    if not plans:
        raise UsageError.build("apply: no plan is given", remedy="give one for each training step")
    for plan in plans:
        device_targets(plan, options.devices)
    return _apply_checked(plans, options)


@contextlib.contextmanager
def _apply_checked(plans: tuple[Plan, ...], options: ApplyOptions) -> Iterator[AppliedPlans]:
    applied = _applied(plans, options)
    with _install_hooks(applied), fit_in_micro_batches(plans):
        yield applied
    if not applied.findings:
        made = plans[0].provenance
        raise MismatchError.build(
            f"nothing ran by the plan of {made.graph_source}: no session and no tf.function ran that trains",
            remedy="put the training inside the context",
        )


def place(fn: Callable[..., Any], plan: Plan, options: ApplyOptions) -> Callable[..., Any]:
    """`fn`, a step as a tf.function or plain function, placed and ordered; for training loops of one's own.

    Its variables move to their planned devices when it is first called, and stay there. Its attribute `applied` is
    what `apply` gives: what was verified. Calls from several threads wait for each other. UsageError when `fn` is no
    function, is traced already, or is called by another tf.function; InputError when XLA must compile it, or a device
    is not there.
    """
    from pesto.tf.nodes.inline_tracing import with_inline_calls

    if not callable(fn):
        raise UsageError.build(f"place: {type(fn).__name__} is no step", remedy="give a function or a tf.function")
    if isinstance(fn, tf.types.experimental.ConcreteFunction):
        raise placement_refusals.concrete_function_error("place")
    if private.jit_of(fn):
        raise placement_refusals.xla_error("place")
    step = tf.function(
        with_inline_calls(getattr(fn, "python_function", fn)),
        input_signature=getattr(fn, "input_signature", None),
        autograph=private.autograph_of(fn),
    )
    applied = _applied((plan,), options)
    applied.functions.wanted(plan)

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


def _applied(plans: tuple[Plan, ...], options: ApplyOptions) -> AppliedPlans:
    self_test()
    for plan in plans:
        refuse_older(plan)
        device_targets(plan, options.devices)  # a name that is wrong is said now, and not at the first step
    functions = FunctionEnforcement(plans=plans, options=options)
    sessions = SessionEnforcement(plans=plans, options=options)
    return AppliedPlans(functions=functions, sessions=sessions, token=f"pesto {uuid.uuid4()}")


@contextlib.contextmanager
def _install_hooks(applied: AppliedPlans, *, keep: bool = False) -> Iterator[None]:
    """Hooks and settings in place; `keep` leaves variables where they were moved to."""
    functions, sessions = applied.functions, applied.sessions
    with contextlib.ExitStack() as stack:
        # The order of the hooks matters: the lock first, settings before any trace, and undo callbacks last, so that
        # they run first on exit, while the lock is still held.
        stack.enter_context(exclusive_use(wait=keep))
        stack.enter_context(plan_settings())
        stack.enter_context(training.in_functions_only(remedy=", or train outside pesto.apply"))
        stack.enter_context(private.watch_traces(functions.on_graph, functions.on_function))
        stack.enter_context(private.compile_only(functions.on_compile))
        # TensorFlow caches traces by signature and context. The token makes functions traced before the context traced
        # again inside, where they can be edited.
        stack.enter_context(private.separate_traces(applied.token))
        stack.enter_context(private.intercept_traces(functions.on_trace))
        stack.enter_context(private.intercept_calls(functions.called))
        stack.enter_context(private.intercept_sessions(sessions.open, sessions.run, sessions.callable_of))
        if not keep:
            stack.callback(functions.moves.undo)
            stack.callback(sessions.undo)
        yield
