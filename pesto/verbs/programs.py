"""`apply`, `place`, `pipeline`, `rewrite`, `record` and `logical_cpus`: TensorFlow programs that run by plans."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pesto.core.option import expect_count, expect_names
from pesto.core.plans.plan import Plan
from pesto.inputs.load import as_plan
from pesto.tf.tensorflow_start import load_tensorflow

if TYPE_CHECKING:
    from pesto.tf.enforce.context import AppliedPlans, RecordedSteps


def apply(
    *plans: Plan | str | Path, devices: Mapping[str, str] | str | None = None, order: bool = True, trace: bool = False
) -> AbstractContextManager["AppliedPlans"]:
    """A context in which unchanged programs train by a plan: Keras `fit`, v1 sessions, tf.functions.

    plans: one for each training step inside, as objects or files. devices: None (gpu:1 is /device:GPU:1), "cpu" (the
    plan's k-th device is logical CPU k), or {plan's device: TensorFlow's}. order: whether the order is enforced, too.
    trace: whether to compare the order in which the ops of a session's first run ran. The value is what was verified:
    every step's first run is held against TensorFlow's partition graphs. Leaving the context undoes everything.

    PestoError when something trains that no plan is for, or that does not run as planned.
    """
    load_tensorflow()
    from pesto.tf.apply_placement.targets import ApplyOptions
    from pesto.tf.enforce import context
    from pesto.tf.enforce.context import SingleUseContext

    options = ApplyOptions(devices=devices, order=order, trace=trace)
    return SingleUseContext("pesto.apply", context.apply(tuple(as_plan(plan) for plan in plans), options))


def place(
    fn: Callable[..., Any],
    plan: Plan | str | Path,
    *,
    devices: Mapping[str, str] | str | None = None,
    order: bool = True,
    trace: bool = False,
) -> Callable[..., Any]:
    """A training step (a function or tf.function), placed and ordered by `plan`; for loops of one's own.

    Options as in `apply`. Functions that it calls are traced inline. Its variables move to their planned devices at the
    first call.

    UsageError for what is no function, or was traced already, InputError for one that XLA must compile, and what
    `apply` raises.
    """
    load_tensorflow()
    from pesto.tf.apply_placement.targets import ApplyOptions
    from pesto.tf.enforce import context

    return context.place(fn, as_plan(plan), ApplyOptions(devices=devices, order=order, trace=trace))


def pipeline(
    step: Any,
    plan: Plan | str | Path,
    *,
    devices: Mapping[str, str] | str | None = None,
    order: bool = True,
    trace: bool = False,
) -> Callable[..., Any]:
    """A training step in the micro-batches that `pesto pipeline --function` planned, placed and ordered.

    step: a compiled Keras model, of which `step(x, y)` then gives the loss of that batch; a function or tf.function
    that takes gradients once and applies them by a Keras optimizer; or one that loops over micro-batches itself.
    Options as in `apply`, in which `fit` does the same. Gradients are added up in the order of the micro-batches.

    UsageError for a model whose plan has no micro-batches and for a batch that they do not divide, and what `place`
    raises.
    """
    load_tensorflow()
    from pesto.tf.apply_placement.targets import ApplyOptions
    from pesto.tf.enforce import context

    return context.pipeline(step, as_plan(plan), ApplyOptions(devices=devices, order=order, trace=trace))


def rewrite(
    graph_def: Any,
    plan: Plan | str | Path,
    *,
    devices: Mapping[str, str] | str | None = None,
    order: bool = True,
    trace: bool = False,
    keep: str | Iterable[str] = (),
) -> Any:
    """A copy of a GraphDef with the plan's devices and order in it, to hand to another program. Options as in `apply`.

    keep: small constants that the program feeds, maps or fetches by name. Others that several devices read have a copy
    on each and no longer their name; these stay one node and are sent, which the plan does not count.

    MismatchError when the plan is of another graph, VerificationError when TensorFlow would not run it as planned,
    UsageError when asked to trace, as nothing is run, and to keep what is no such constant.
    """
    load_tensorflow()
    from pesto.tf.apply_placement.targets import ApplyOptions
    from pesto.tf.enforce.rewrite import rewrite as rewritten

    options = ApplyOptions(devices=devices, order=order, trace=trace)
    return rewritten(graph_def, as_plan(plan), options, expect_names("keep", keep))


def record(*, batch: int | None = None) -> AbstractContextManager["RecordedSteps"]:
    """A context that takes the training step which is traced inside: its value's `graph` is what to plan.

    batch: the size of a batch, where the program leaves the first dimension open (as Keras' `fit` often does).

    UsageError when it is below 1. Its `graph` raises InputError when not exactly one training step was traced.
    """
    if batch is not None:
        expect_count("batch", batch)
    load_tensorflow()
    from pesto.tf.enforce.context import SingleUseContext
    from pesto.tf.enforce.context import record as recorded

    return SingleUseContext("pesto.record", recorded(batch))


def logical_cpus(count: int) -> None:
    """Split the CPU into `count` logical devices, to try a plan without GPUs.

    UsageError when `count` is below 1, or TensorFlow has started with another number of them.
    """
    expect_count("count", count)
    load_tensorflow()
    from pesto.tf.apply_placement.targets import logical_cpus as split

    split(count)
