"""Ops by which a graph reads files or calls other hosts as soon as TensorFlow infers its shapes.

TensorFlow computes what a shape depends on where that is constant, by any op without a state: a graph whose sizes are
the content of a file has that file read when it is imported.
"""

from typing import Any

from pesto.core.errors import InputError

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
                raise InputError(
                    f"{where}: the op {node.op} reads files or calls other hosts, which no job may - export the graph "
                    "with a placeholder in its place"
                )
