"""Inputs and attributes of ops that take none of those tried of all: they must agree with each other."""

from collections.abc import Mapping, Sequence
from typing import Any

from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()

Shape = tuple[int, ...] | str
CSR, VARIABLE = "csr", "variable"
"""Inputs that are no placeholders, as their makers state shapes: a sparse matrix of 4 x 4, a variable of one int32."""
_F, _I, _L = tf.float32, tf.int32, tf.int64
_IMAGES, _VOLUMES = (4, 4, 4, 4), (4, 4, 4, 4, 4)
_ROW = [tf.TensorShape([4])]
_DENSE = {"Tdense": [_F], "dense_shapes": _ROW}
_CONTEXT = {"Ncontext_dense": 1, "Tcontext_dense": [_F], "context_dense_shapes": _ROW}
_LISTS = {"Nfeature_list_dense": 1, "feature_list_dense_types": [_F], "feature_list_dense_shapes": _ROW}
_CONTEXT_SPARSE = {"Ncontext_sparse": 1, "context_sparse_types": [_F]}
_NO_SPARSE_LISTS: dict[str, Any] = {"feature_list_sparse_types": []}
_NO_RAGGED: dict[str, Any] = {
    f"{where}_ragged_{kind}_types": [] for where in ("context", "feature_list") for kind in ("value", "split")
}
_BYTES = {"lhs": (-128, 127), "rhs": (-128, 127), "output": (-(2**31), 2**31 - 1)}


def _quantized(*of: str) -> dict[str, Any]:
    limits = {f"{x}_quantization_{end}_val": _BYTES[x][k] for x in of for k, end in enumerate(("min", "max"))}
    return {"padding": "VALID", **limits}


CALLS: Mapping[str, tuple[Mapping[str, Any], Sequence[Shape]]] = {
    "ApproxTopK": ({}, [(4, 4)]),
    "AvgPool3DGrad": ({"ksize": [1] * 5, "strides": [1] * 5}, [(5,), _VOLUMES]),
    "BatchToSpaceND": ({}, [_IMAGES, (2,), (2, 2)]),
    "CSRSparseMatrixComponents": ({}, [CSR, ()]),
    "CSRSparseMatrixToDense": ({}, [CSR]),
    "CSRSparseMatrixToSparseTensor": ({}, [CSR]),
    "Conv3DBackpropFilterV2": ({"strides": [1] * 5}, [_VOLUMES, (5,), _VOLUMES]),
    "Conv3DBackpropInputV2": ({"strides": [1] * 5}, [(5,), _VOLUMES, _VOLUMES]),
    "DenseToCSRSparseMatrix": ({}, [(4, 4), (4, 2)]),
    "Einsum": ({"equation": "ab,bc->ac", "N": 2}, [(4, 4), (4, 4)]),
    "FusedPadConv2D": ({"strides": [1] * 4}, [_IMAGES, (4, 2), _IMAGES]),
    "FusedResizeAndPadConv2D": ({"strides": [1] * 4}, [_IMAGES, (2,), (4, 2), _IMAGES]),
    "GenerateBoundingBoxProposals": ({}, [_IMAGES, (4, 4, 4, 16), (4, 5), (4, 4, 4), (), (), ()]),
    "OutfeedDequeueTupleV2": ({}, [()]),
    "ParallelConcat": ({"N": 2, "shape": tf.TensorShape([2, 4])}, [(1, 4), (1, 4)]),
    "ParseExample": ({"Nsparse": 1, "Ndense": 1, "sparse_types": [_F], **_DENSE}, [(4,), (4,), (), (), (4,)]),
    "ParseExampleV2": (
        {"num_sparse": 1, "sparse_types": [_F], "ragged_value_types": [_F], "ragged_split_types": [_I], **_DENSE},
        [(4,), (4,), (1,), (1,), (1,), (4,)],
    ),
    "ParseSequenceExample": (
        {
            "context_sparse_keys": ["a"], "context_dense_keys": ["b"], "feature_list_dense_keys": ["c"],
            "feature_list_dense_missing_assumed_empty": [], "feature_list_sparse_keys": [],
            **_CONTEXT_SPARSE, **_CONTEXT, **_LISTS, **_NO_SPARSE_LISTS,
        },
        [(4,), (4,), (4,)],
    ),
    "ParseSequenceExampleV2": (
        {**_CONTEXT_SPARSE, **_CONTEXT, **_LISTS, **_NO_SPARSE_LISTS, **_NO_RAGGED},
        [(4,), (4,), (1,), (1,), (0,), (0,), (1,), (0,), (1,), (4,)],
    ),
    "ParseSingleExample": (
        {"num_sparse": 1, "sparse_keys": ["a"], "dense_keys": ["b"], "sparse_types": [_F], **_DENSE},
        [(), (4,)],
    ),
    "ParseSingleSequenceExample": (
        {**_CONTEXT, **_LISTS, **_NO_SPARSE_LISTS, "context_sparse_types": []},
        [(), (1,), (), (), (4,), ()],
    ),
    "RaggedCross": (
        {
            "Nsparse": 0, "input_order": "RD", "hashed_output": True, "num_buckets": 9, "hash_key": 1,
            "ragged_values_types": [_L], "ragged_splits_types": [_L], "sparse_values_types": [], "dense_types": [_L],
            "out_values_type": _L, "out_row_splits_type": _L,
        },
        [(4,), (5,), (4, 1)],
    ),
    "RaggedTensorToTensor": (
        {"num_row_partition_tensors": 1, "row_partition_types": ["ROW_SPLITS"]},
        [(2,), (4,), (), (4,)],
    ),
    "ResourceCountUpTo": ({}, [VARIABLE]),
    "SortListOfSparseCoreCooTensors": (
        {"N": 1, "sample_count_list": [4], "col_offset_list": [0]},
        [(4,), (4,), (4,)],
    ),
    "SpaceToBatchND": ({}, [_IMAGES, (2,), (2, 2)]),
    "SparseMatrixAdd": ({}, [CSR, CSR, (), ()]),
    "SparseMatrixMatMul": ({}, [CSR, (4, 4)]),
    "SparseMatrixMul": ({}, [CSR, ()]),
    "SparseMatrixNNZ": ({}, [CSR]),
    "SparseMatrixOrderingAMD": ({}, [CSR]),
    "SparseMatrixSoftmax": ({}, [CSR]),
    "SparseMatrixSoftmaxGrad": ({}, [CSR, CSR]),
    "SparseMatrixSparseCholesky": ({}, [CSR, (4,)]),
    "SparseMatrixSparseMatMul": ({}, [CSR, CSR]),
    "SparseMatrixTranspose": ({}, [CSR]),
    "SparseMatrixZeros": ({}, [(2,)]),
    "SparseTensorToCSRSparseMatrix": ({}, [(4, 2), (4,), (2,)]),
    "TridiagonalSolve": ({}, [(3, 4), (4, 4)]),
    "UniformQuantizedConvolution": (
        _quantized("lhs", "rhs", "output"),
        [(1, 4, 4, 4), (4, 4, 3, 3), (), (), (), (), (), ()],
    ),
    "UniformQuantizedConvolutionHybrid": (_quantized("rhs"), [(1, 4, 4, 4), (4, 4, 3, 3), (), ()]),
}  # fmt: skip
"""By op: attributes that differ from those of `attributes`, and the shape of each input."""


def attr_value(value: Any) -> Any:
    """An attribute as a NodeDef holds it."""
    made = tf.compat.v1.AttrValue()
    if isinstance(value, list):
        made.list.SetInParent()
        for item in value:
            field = _field(item)
            of = getattr(made.list, field)
            of.append(item.as_proto() if field == "shape" else _plain(item))
    elif isinstance(value, tf.TensorShape):
        made.shape.CopyFrom(value.as_proto())
    else:
        setattr(made, _field(value), _plain(value))
    return made


def _field(value: Any) -> str:
    kinds = {bool: "b", int: "i", float: "f", str: "s", tf.DType: "type", tf.TensorShape: "shape"}
    return next(field for kind, field in kinds.items() if isinstance(value, kind))


def _plain(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else getattr(value, "as_datatype_enum", value)


def stand_in(dtype: int, shape: Shape | None) -> Any:
    """A placeholder of a shape, a sparse matrix, or a variable."""
    if shape == CSR:
        indices, values = (tf.compat.v1.placeholder(t, s) for t, s in ((_L, (4, 2)), (_F, (4,))))
        return tf.raw_ops.SparseTensorToCSRSparseMatrix(indices=indices, values=values, dense_shape=[4, 4])
    if shape == VARIABLE:
        return tf.raw_ops.VarHandleOp(dtype=_I, shape=[], shared_name="v")
    return tf.compat.v1.placeholder(tf.as_dtype(dtype), shape)
