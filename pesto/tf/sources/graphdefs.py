"""GraphDef files, binary and text, as TensorFlow's own objects."""

from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

from pesto.core.errors import InputError
from pesto.core.files.disk import is_confined
from pesto.core.files.json import shown
from pesto.tf.nodes.graph_def_bytes import graph_def_bytes

# Ops by which a graph reads files or calls other hosts as soon as TensorFlow infers its shapes.

EXTERNAL = frozenset(
    {
        "CacheDataset", "Copy", "CopyHost", "DebugIdentity", "DebugNanCount", "DebugNumericSummary",
        "GenerateVocabRemapping", "ImmutableConst", "InitializeTableFromTextFile", "MatchingFiles", "ReadFile",
        "RegisterDataset", "RegisterDatasetV2", "SnapshotChunkDataset", "SnapshotDataset", "SnapshotDatasetReader",
        "SnapshotDatasetV2",
    }
)  # fmt: skip
"""Stateless op types that access files or hosts; TensorFlow does not evaluate stateful ones on import."""


def refuse_external_ops(graph_def: Any, where: str) -> None:
    """InputError for a graph, or a function in it, with such an op."""
    for nodes in (graph_def.node, *(function.node_def for function in graph_def.library.function)):
        for node in nodes:
            if node.op in EXTERNAL:
                raise InputError.build(
                    f"the op {node.op} reads files or calls other hosts, which no job may",
                    where=where,
                    remedy="export the graph with a placeholder in its place",
                )


def saved_program(folder: Path) -> Any:
    """The MetaGraphDef of a SavedModel that is served, or its only one; None where there is none."""
    for name, parse in (("saved_model.pb", saved_model_pb2.SavedModel.FromString), ("saved_model.pbtxt", _parse_text)):
        try:
            programs = parse((folder / name).read_bytes()).meta_graphs
        except (OSError, text_format.ParseError, DecodeError, UnicodeDecodeError, ValueError, RecursionError):
            continue
        served = [program for program in programs if "serve" in program.meta_info_def.tags]
        if served or len(programs) == 1:
            return (served or programs)[0]
    return None


def _parse_text(data: bytes) -> Any:
    return text_format.Parse(data, saved_model_pb2.SavedModel())


def read_graph_def(path: Path) -> Any:
    """The GraphDef in a `.pb` or `.pbtxt` file; errors as of `graph_def_bytes`.

    InputError where parsing fails, and in a job for ops that read files (`refuse_external_ops`).
    """
    data, where = graph_def_bytes(path), shown(path)
    graph_def = graph_pb2.GraphDef()
    try:
        if path.suffix == ".pbtxt":
            text_format.Parse(data, graph_def)
        else:
            graph_def.ParseFromString(data)
    except (text_format.ParseError, DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        kind = "a GraphDef in text" if path.suffix == ".pbtxt" else "a GraphDef"
        raise InputError.build(f"not {kind}: {shown(error)}", where=where, remedy="export the graph again") from error
    if not graph_def.node:
        raise InputError.build("the graph has no ops", where=where, remedy="export the graph again")
    if is_confined():
        refuse_external_ops(graph_def, where)
    return graph_def
