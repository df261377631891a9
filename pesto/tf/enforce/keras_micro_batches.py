"""Keras' `fit` in the micro-batches of plans."""

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from pesto.core.errors import UsageError
from pesto.core.plans.plan import Plan
from pesto.core.source import Cut, cut_by
from pesto.tf.pipelined.in_micro_batches import train_in_micro_batches


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
    made = [cut_by(plan.provenance.graph_source) for plan in plans]
    every = {None if one is None else one.cut for one in made}
    if len(every) > 1:
        said = " and ".join(sorted({"none" if cut is None else str(cut.batches) for cut in every}))
        said = said if " and " in said else f"{said}, updated in several ways,"
        raise UsageError(f"apply: these plans have {said} micro-batches - apply each in a context of its own")
    return next(iter(every), None)
