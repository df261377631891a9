"""Keras' `fit` in the micro-batches of plans."""

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from pesto.errors import UsageError
from pesto.plans.plan import Plan
from pesto.source import cut_by
from pesto.tf.pipelined.in_micro_batches import train_in_micro_batches


@contextlib.contextmanager
def fitting(plans: Sequence[Plan]) -> Iterator[None]:
    """Inside: Keras models train by the micro-batches of these plans, where they have any, in `fit` and train_on_batch.

    UsageError where some plans have other micro-batches than others.
    """
    every = {None if cut is None else cut.pieces for cut in (cut_by(p.provenance.graph_source) for p in plans)}
    if len(every) > 1:
        said = " and ".join(sorted("none" if n is None else str(n) for n in every))
        raise UsageError(f"apply: these plans have {said} micro-batches - apply each in a context of its own")
    (pieces,) = every
    if pieces is None:
        yield
        return
    trainer = next(kind for kind in keras.Model.__mro__ if "make_train_function" in vars(kind))
    original, made = trainer.make_train_function, weakref.WeakSet[Any]()

    def make(model: Any, force: bool = False) -> Any:
        if model in made and not force:
            return None
        before = dict(vars(model))
        vars(model)["train_step"] = train_in_micro_batches(model, pieces)
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
            model.train_function = None
