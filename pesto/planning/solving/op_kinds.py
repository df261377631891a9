"""What a cost model errs in alike: kinds of op by their types, and kinds of link by what a transfer over them costs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pesto.core.graph import Graph
from solvers import Problem
from solvers.arrays import Ints, ints

OTHER = "elementwise and other"
_KINDS = (
    ("matmul", r"MatMul|Einsum|Gemm"),
    ("depthwise convolution", r"Depthwise"),
    ("convolution gradient", r"Conv\dD?Backprop"),
    ("convolution", r"^_?(Fused)?Conv(\dD)?$"),
    ("recurrent cell", r"LSTM|GRU|CudnnRNN"),
    ("update", r"Apply|^Assign|^Scatter|ResourceScatter"),
    ("loop or call", r"^(Stateless)?(While|If|Case)|PartitionedCall"),
    ("random", r"Random|Multinomial"),
    (
        "reduction",
        r"Softmax|Norm|Pool|^(Sum|Mean|Max|Min|Prod|All|Any|ArgMax|ArgMin|L2Loss|BiasAddGrad|Cumsum|TopK)(V\d)?$|Segment",
    ),
    (
        "data movement",
        r"^(Concat|Transpose|ConjugateTranspose|Slice|StridedSlice|Split|Pack|Unpack|Pad|MirrorPad|Tile|Fill|Gather|"
        r"ResourceGather|Reverse|OneHot|BroadcastTo|Cast|ZerosLike|OnesLike|Roll|Dynamic|SpaceTo|DepthTo|BatchTo|"
        r"TensorList|Read|Identity|Reshape)",
    ),
)  # fmt: skip
"""Kind and what a type of it has in its name, the first that is found; of TensorFlow's types."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ErrorSources:
    """What one draw of errors is common to: kinds of op, then kinds of link; of those that take time at all."""

    kinds: tuple[str, ...]
    """Kinds of op that have an op which takes time."""
    links: tuple[str, ...]
    """Kinds of link, each called by the first pair of devices that it joins."""
    of_op: Ints
    """[n] source of each op: an index into `kinds`; any, where an op takes no time."""
    of_path: Ints
    """[c] source of each class of paths: len(kinds) and its place in `links`."""

    @property
    def count(self) -> int:
        """Number of sources."""
        return len(self.kinds) + len(self.links)

    @classmethod
    def of(cls, graph: Graph, problem: Problem, places: Sequence[str]) -> "ErrorSources":
        """places: [l] names of the locations."""
        named = np.array([kind_of(name) for name in graph.types])[graph.type_of]
        timed = (problem.duration > 0).any(axis=1)
        kinds, place = np.unique(np.concatenate([named[timed], named[:0]]), return_inverse=True)
        of_op = np.zeros(graph.ops, dtype=np.int64)
        of_op[timed] = place
        classes = problem.transfer.shape[1]
        first = [np.argwhere(problem.path_class == c)[:1].tolist() for c in range(classes)]
        links = tuple(f"{places[a]}-{places[b]}" for pair in first for a, b in pair)
        return cls(
            kinds=tuple(kinds.tolist()), links=links, of_op=ints(of_op), of_path=ints(len(kinds) + np.arange(classes))
        )


def kind_of(op_type: str) -> str:
    """The kind of an op's type."""
    return next((kind for kind, pattern in _KINDS if re.search(pattern, op_type)), OTHER)
