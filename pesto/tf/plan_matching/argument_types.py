"""The types of a tf.function's arguments: tensors by the name that a reader of the program knows, and other types."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import tensorflow as tf

from pesto.tf import private

Change = Callable[[str, Any], Any]
"""Function from an argument's name and TensorSpec to another TensorSpec."""
FIT = "one_step_on_data"
"""The function of Keras that runs one step of `fit`."""
_FIT_ARGUMENTS = {FIT: "data", "train_function": "iterator"}
"""Functions of Keras 3 and of Keras 2 that run a step of `fit` -> the argument that has or gives its batch."""


def tensor_specs(signature: Any) -> dict[str, Any]:
    """The TensorSpec of each tensor among the arguments of a FunctionType, by its name: x, data[1], batch['ids']."""
    specs: dict[str, Any] = {}

    def keep(name: str, spec: Any) -> Any:
        specs[name] = spec
        return spec

    map_specs(signature, keep)
    return specs


def describe_argument(name: str, function: str) -> str:
    """An argument's name, in the function of Keras that runs a step with what it is for `fit`."""
    whole = _FIT_ARGUMENTS.get(function)
    meant = {f"{whole}[{k}]": part for k, part in enumerate(("x", "y", "sample_weight"))} if whole else {}
    return f"{name} ({meant[name]} of fit)" if name in meant else name


def map_specs(signature: Any, change: Change) -> Any:
    """A FunctionType with other TensorSpecs."""
    parameters = signature.parameters.values()
    return _with(signature, {p.name: _changed(p.name, p.type_constraint, change) for p in parameters})


def _with(signature: Any, kinds: Mapping[str, Any]) -> Any:
    """A FunctionType whose parameters have these types, or their own."""
    given = signature.parameters.values()
    parameters = [type(p)(p.name, p.kind, p.optional, kinds.get(p.name, p.type_constraint)) for p in given]
    return type(signature)(parameters, signature.captures, return_annotation=signature.return_annotation)


def _changed(name: str, kind: Any, change: Change) -> Any:
    if isinstance(kind, tf.TensorSpec):
        return change(name, kind)
    if isinstance(kind, tf.data.IteratorSpec):
        return tf.data.IteratorSpec(_changed_element(name, private.element_spec(kind), change))
    parts = private.members(kind)
    if parts is None:
        return kind
    return private.with_members(kind, [_changed(f"{name}{label}", part, change) for label, part in parts])


def _changed_element(name: str, spec: Any, change: Change) -> Any:
    """Change the specs of what an iterator gives; (x, y) is named as the argument of Keras' own step is."""
    if isinstance(spec, tf.TensorSpec):
        return change(name, spec)
    if isinstance(spec, tuple):
        parts = [_changed_element(f"{name}[{k}]", part, change) for k, part in enumerate(spec)]
        return type(spec)(*parts) if hasattr(spec, "_fields") else tuple(parts)
    if isinstance(spec, dict):
        return type(spec)({k: _changed_element(f"{name}[{k!r}]", part, change) for k, part in spec.items()})
    return spec


def _parts(kind: Any) -> Any:
    """The members of a tuple's or list's type; None for others."""
    if type(kind).__name__ == "List":
        return kind.components_tuple.components
    return kind.components if type(kind).__name__ == "Tuple" else None


def open_batch(signature: Any) -> tuple[int, Any] | None:
    """(examples, FunctionType): the batch that the first tensor has, and the types with that dimension left open."""
    sizes = [spec.shape[0] for spec in tensor_specs(signature).values() if spec.shape.rank]
    if not sizes or sizes[0] is None:
        return None

    # Only dimensions equal to the first tensor's are opened: weights or lookup tables among the arguments have other
    # first sizes.
    def open_(_name: str, spec: Any) -> Any:
        return _with_first_dimension(spec, None) if spec.shape.rank and spec.shape[0] == sizes[0] else spec

    return sizes[0], map_specs(signature, open_)


def fix_batch(signature: Any, batch: int) -> Any:
    """A FunctionType in which the open first dimensions have a size; None when there are none."""
    if not any(_is_open(spec) for spec in tensor_specs(signature).values()):
        return None
    return map_specs(signature, lambda _, spec: _with_first_dimension(spec, batch) if _is_open(spec) else spec)


def _is_open(spec: Any) -> bool:
    return bool(spec.shape.rank) and spec.shape[0] is None


def _with_first_dimension(spec: Any, first: int | None) -> Any:
    return tf.TensorSpec([first, *spec.shape[1:]], spec.dtype, spec.name)


def change_dtype(signature: Any, names: Collection[str], dtype: Any) -> Any:
    """A FunctionType in which the tensors `names` have another dtype."""
    return map_specs(
        signature, lambda name, spec: tf.TensorSpec(spec.shape, dtype, spec.name) if name in names else spec
    )


def toggle_weights(signature: Any) -> Iterator[tuple[str, bool, Any]]:
    """(argument, given, FunctionType): an (x, y, sample_weight) without its weights, an (x, y) with some.

    given: whether the argument has weights as it is.
    """
    for parameter in signature.parameters.values():
        kind = parameter.type_constraint
        iterated = isinstance(kind, tf.data.IteratorSpec)
        parts = private.element_spec(kind) if iterated else _parts(kind)
        if not isinstance(parts, tuple) or len(parts) not in (2, 3):
            continue
        if len(parts) == 2 and not isinstance(parts[1], tf.TensorSpec):
            continue
        weights = () if len(parts) == 3 else (tf.TensorSpec(parts[1].shape[:1], tf.float32),)
        others = (*parts[:2], *weights)
        changed_kind = tf.data.IteratorSpec(others) if iterated else type(kind)(*others)
        yield parameter.name, len(parts) == 3, _with(signature, {parameter.name: changed_kind})
