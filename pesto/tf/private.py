"""Every private name of TensorFlow that the project uses, with a self-test: one file to mend for a new release."""

from typing import Any

import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

from pesto.errors import InputError


def op_def(name: str) -> Any:
    """The OpDef of a registered op type, or None."""
    return op_def_registry.get(name)


def registered_kernels() -> list[Any]:
    """The KernelDef of every kernel in this build, GPU kernels included where the build has them."""
    return list(kernels.get_all_registered_kernels().kernel)


def handle_shape(handle: Any) -> tuple[int, Any] | None:
    """Dtype number and TensorShapeProto of the variable behind an eager resource handle; None for other resources."""
    data = getattr(handle, "_handle_data", None)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    return data.shape_and_type[0].dtype, data.shape_and_type[0].shape


def self_test() -> None:
    """Check that the private names still mean what we think; InputError naming the first that does not."""
    known = handle_shape(tf.Variable([1.0, 2.0]).handle)
    checks = {
        "op_def_registry.get": getattr(op_def("MatMul"), "name", "") == "MatMul" and op_def("NoSuchOp") is None,
        "kernels.get_all_registered_kernels": any(k.op == "MatMul" for k in registered_kernels()),
        "EagerTensor._handle_data": known is not None
        and known[0] == tf.float32.as_datatype_enum
        and [d.size for d in known[1].dim] == [2],
    }
    for name, works in checks.items():
        if not works:
            raise InputError(f"tensorflow {tf.__version__}: {name} changed - install tensorflow>=2.21,<2.22")
