"""What a partitioned GraphDef sends, by TensorFlow's own shapes and the devices of its nodes."""

from typing import Any

from pesto.tf.tensorflow_start import load_tensorflow

HOST = "/device:CPU:0"


def moved(graph_def: Any) -> int:
    """Bytes of the tensors that cross devices, each to a device once; not of what the host sends or receives."""
    tf = load_tensorflow()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    sent = {
        (tensor.name, op.device)
        for op in graph.get_operations()
        for tensor in op.inputs
        if op.device != tensor.device and HOST not in (op.device, tensor.device)
    }
    tensors = [graph.get_tensor_by_name(name) for name, _ in sent]
    return sum(t.shape.num_elements() * t.dtype.size for t in tensors if t.dtype != tf.resource)
