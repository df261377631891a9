"""GraphDef files: read, counted before they are parsed, and refused in one line when they are damaged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pesto.core.errors import InputError, PestoError
from pesto.core.source import Source
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf import named_sources  # noqa: E402
from pesto.tf.nodes.graph_def_bytes import check_graph_def, count_nodes  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load


def step_graph() -> Any:
    """A v1 graph with a feed, a variable, and ops `train` and `loss`."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [4, 8], name="x")
        w = v1.get_variable("w", [8, 3], use_resource=True)
        loss = tf.reduce_mean(tf.square(x @ w), name="loss")
        v1.train.AdamOptimizer(0.1).minimize(loss, name="train")
    return graph


def with_a_call() -> Any:
    """A GraphDef with functions: a call and a loop."""

    @tf.function
    def double(x: Any) -> Any:
        return x * 2.0

    @tf.function
    def outer(x: Any) -> Any:
        for _ in tf.range(3):
            x = double(x)
        return x

    return outer.get_concrete_function(tf.TensorSpec([4, 8])).graph.as_graph_def()


def test_files_give_the_fingerprint_of_the_graph(tmp_path: Path) -> None:
    """Binary and text round trip; `*` takes everything up to what nothing reads."""
    graph = step_graph()
    graph_def = graph.as_graph_def()
    binary, text = tmp_path / "g.pb", tmp_path / "g.pbtxt"
    binary.write_bytes(graph_def.SerializeToString())
    text.write_text(str(graph_def))
    wanted = sources.from_v1(graph, ["train", "loss"]).fingerprint()
    for path in (binary, text):
        assert sources.from_graph_def_file(path, ["train", "loss"]).fingerprint() == wanted
        assert named_sources.load_graph(Source(file=path, fetch=("train", "loss"))).fingerprint() == wanted
        assert sources.from_graph_def_file(path, ["*"]).ops > sources.from_graph_def_file(path, ["train"]).ops
        assert (
            named_sources.load_graph(Source(file=path, fetch=("*",))).ops
            == sources.from_graph_def_file(path, ["*"]).ops
        )
    with pytest.raises(InputError, match="did you mean 'loss'"):
        sources.from_graph_def_file(binary, ["los"])


def test_several_ends_are_named_and_asked_for(tmp_path: Path) -> None:
    """An initializer is no part of a step; the op that needs most comes first. One end needs no fetch."""
    graph = step_graph()
    with graph.as_default():
        v1.global_variables_initializer()
    path = tmp_path / "g.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    with pytest.raises(
        InputError, match=r"ends in \d+ ops that nothing reads \(train, .*such as train, or '\*' for all"
    ):
        sources.from_graph_def_file(path)
    with pytest.raises(InputError, match="ends in"):
        named_sources.load_graph(Source(file=path))
    step = with_one_end(graph, "train")
    path.write_bytes(step.SerializeToString())
    assert sources.from_graph_def_file(path).fingerprint() == sources.from_v1(graph, ["train"]).fingerprint()


def with_one_end(graph: Any, name: str) -> Any:
    return v1.graph_util.extract_sub_graph(graph.as_graph_def(), [name])


@pytest.mark.parametrize("name", ["g.pb", "g.pbtxt"])
@pytest.mark.parametrize("data", [b"", b"\n \n", b"\xff\x00garbage", b"node {", b"\x0a\x7f", b"\x1f\x8bnot gzip"])
def test_files_that_are_no_graphs_are_refused_in_one_line(tmp_path: Path, name: str, data: bytes) -> None:
    """Empty, foreign, truncated, damaged gzip: an InputError of one line that names the file."""
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        sources.from_graph_def_file(path)
    assert "\n" not in str(caught.value) and name in str(caught.value)


def test_a_missing_file_is_a_file_error(tmp_path: Path) -> None:
    """Exit code 8, not a traceback."""
    with pytest.raises(PestoError) as caught:
        sources.from_graph_def_file(tmp_path / "none.pb")
    assert caught.value.exit_code == 8


def test_nodes_are_counted_before_they_are_parsed(tmp_path: Path) -> None:
    """12 MB of empty nodes are 6 million, beyond the limit of 5; those of functions count as well."""
    path = tmp_path / "many.pb"
    path.write_bytes(b"\x0a\x00" * 6_000_000)
    with pytest.raises(InputError, match="6000000 nodes"):
        sources.from_graph_def_file(path)
    # A library (field 2) with one function (1) that holds 3 nodes (3), after one node of the graph.
    library = b"\x12\x08\x0a\x06" + b"\x1a\x00" * 3
    assert count_nodes(b"\x0a\x00" + library, "test") == 4
    text = tmp_path / "many.pbtxt"
    text.write_bytes(b"node{}" * 5_000_001)
    with pytest.raises(InputError, match="5000001 nodes"):
        sources.from_graph_def_file(text)


@pytest.mark.parametrize("name", ["g.pb", "g.pbtxt"])
def test_a_fetch_is_looked_for_before_anything_is_parsed(tmp_path: Path, name: str) -> None:
    """Every op's name is found, one of 300 characters too, also as op:0 and ^op; else it is refused."""
    graph, long = step_graph(), "x" * 300
    with graph.as_default():
        tf.constant(1.0, name=long)
    graph_def, path = graph.as_graph_def(), tmp_path / name
    path.write_bytes(str(graph_def).encode() if name.endswith("txt") else graph_def.SerializeToString())
    check_graph_def(path, [node.name for node in graph_def.node] + ["loss:0", "^train", long])
    for wrong in ("los", "los:0", "^los"):
        with pytest.raises(InputError, match=rf"file {name}: no op is named 'los' - did you mean 'loss'\?"):
            check_graph_def(path, [wrong])


def test_counting_agrees_with_the_parser() -> None:
    """The count from field tags is the parser's, functions included."""
    graph_def = with_a_call()
    inner = sum(len(f.node_def) for f in graph_def.library.function)
    assert inner > 0
    assert count_nodes(graph_def.SerializeToString(), "test") == len(graph_def.node) + inner


def test_damaged_files_never_give_anything_but_a_graph_or_a_pesto_error(
    tmp_path: Path, seeds: Callable[[int], range]
) -> None:
    """Truncations and flipped bits of a real file: success or a PestoError of one line."""
    data = step_graph().as_graph_def().SerializeToString()
    rng = np.random.default_rng(7)
    path = tmp_path / "g.pb"
    refused = 0
    for round_ in seeds(120):
        broken = bytearray(data)
        if round_ % 3 == 0:
            del broken[int(rng.integers(len(broken))) :]
        else:
            for _ in range(int(rng.integers(1, 4))):
                broken[int(rng.integers(len(broken)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        try:
            sources.from_graph_def_file(path, ["train", "loss"], 4 if round_ % 2 else None)
        except PestoError as error:
            refused += 1
            assert "\n" not in str(error), str(error)
    assert refused > 30
