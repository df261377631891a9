"""Process-wide settings while a plan is applied: one plan at a time, Grappler and soft placement off."""

import contextlib
import threading
from collections.abc import Iterator

import tensorflow as tf

from pesto.core.errors import UsageError
from pesto.tf.placement_refusals import check_clustering

_LOCK = threading.Lock()
"""Serializes contexts, since their settings belong to the whole process."""
_HOLDER = threading.local()


@contextlib.contextmanager
def exclusive_use(*, wait: bool) -> Iterator[None]:
    """The process to oneself. UsageError when this thread has it already, or another has and `wait` is False."""
    if getattr(_HOLDER, "holds", False) or not _LOCK.acquire(blocking=wait):
        raise UsageError.build("a plan is being applied already", remedy="give all plans to one pesto.apply")
    _HOLDER.holds = True
    try:
        yield
    finally:
        _HOLDER.holds = False
        _LOCK.release()


@contextlib.contextmanager
def plan_settings() -> Iterator[None]:
    """Grappler and soft placement of tf.functions off; as they were, afterwards. InputError when XLA clusters ops."""
    check_clustering()
    off = _grappler_off()
    soft = tf.config.get_soft_device_placement()
    # Grappler rewrites, merges and removes ops after tracing, and soft placement moves ops whose kernel is missing:
    # either would make the run differ from the plan without an error.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    tf.config.set_soft_device_placement(False)
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": off})
        tf.config.set_soft_device_placement(soft)


def check_settings() -> None:
    """UsageError when the program has changed what `plan_settings` set: TensorFlow would then compile the step anew."""
    check_clustering()
    # TensorFlow compiles a function again when these options change, so the check must precede each call, not only the
    # first.
    if not _grappler_off() or tf.config.get_soft_device_placement():
        raise UsageError.build(
            "Grappler or soft placement was turned on inside pesto.apply, by which ops move and lose their order",
            remedy="set tf.config before the context, or leave it",
        )


def _grappler_off() -> bool:
    return bool(tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False))
