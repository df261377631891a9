"""Argument types of a step with another batch, and the settings of the process while plans are applied."""

from typing import Any

import pytest

from pesto.core.errors import UsageError
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

from pesto.tf.enforce.functions import check_settings, plan_settings  # noqa: E402
from pesto.tf.enforce.plan_matching import fix_batch, open_batch, tensor_specs  # noqa: E402  # after the quiet load


def signature_of(**shapes: list[int | None]) -> Any:
    """The FunctionType of a tf.function with one float argument of each shape."""
    specs = [tf.TensorSpec(shape, tf.float32, name) for name, shape in shapes.items()]
    return tf.function(lambda *given: given[0]).get_concrete_function(*specs).function_type


def shapes_of(signature: Any) -> list[list[int | None]]:
    return [spec.shape.as_list() for spec in tensor_specs(signature).values()]


def test_only_first_dimensions_of_the_size_of_the_batch_are_opened() -> None:
    """A scalar has none, and a table of another first size is no part of the batch."""
    opened = open_batch(signature_of(rate=[], x=[8, 3], table=[5, 8], y=[8]))
    assert opened is not None and opened[0] == 8
    assert shapes_of(opened[1]) == [[], [None, 3], [5, 8], [None]]
    closed = fix_batch(opened[1], 4)
    assert shapes_of(closed) == [[], [4, 3], [5, 8], [4]]
    assert fix_batch(closed, 2) is None


@pytest.mark.parametrize("shapes", [{"rate": []}, {"x": [None, 3], "y": [8]}])
def test_a_signature_without_a_fixed_batch_has_none_to_open(shapes: dict[str, list[int | None]]) -> None:
    """No tensor with a dimension, or the first one is open already."""
    assert open_batch(signature_of(**shapes)) is None


@pytest.mark.parametrize("optimized", [True, False])
def test_settings_of_the_process_hold_inside_alone(optimized: bool) -> None:
    """Grappler and soft placement are off inside, a change there is refused, and what was set before comes back."""
    get = tf.config.optimizer.get_experimental_options
    before = bool(get().get("disable_meta_optimizer")), tf.config.get_soft_device_placement()
    try:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not optimized})
        tf.config.set_soft_device_placement(optimized)
        with plan_settings():
            check_settings()
            assert get()["disable_meta_optimizer"] and not tf.config.get_soft_device_placement()
            tf.config.set_soft_device_placement(True)
            with pytest.raises(UsageError, match="Grappler or soft placement was turned on"):
                check_settings()
        assert bool(get()["disable_meta_optimizer"]) != optimized
        assert tf.config.get_soft_device_placement() == optimized
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before[0]})
        tf.config.set_soft_device_placement(before[1])
