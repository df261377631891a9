"""From TensorFlow graphs to the array Graph: structure, groups, kinds, shapes, loops."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pesto.core.costs.measured import Profile, load_profile, save_profile
from pesto.core.errors import InputError, MismatchError
from pesto.core.graph import Graph
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf import private  # noqa: E402
from pesto.tf.importer import importer, kernels  # noqa: E402
from pesto.tf.nodes.v1_loops import number_groups  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load


def linear(*, batch: int | None = 4, resource: bool = True, optimizer: str = "Adam") -> tuple[Any, list[Any]]:
    """x[batch, 8] @ w[8, 3], mean square, one optimizer step."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [batch, 8], name="x")
        w = v1.get_variable("w", [8, 3], use_resource=resource)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w, name="product")), name="loss")
        train = getattr(v1.train, f"{optimizer}Optimizer")(0.1).minimize(loss, name="train")
    return graph, [train, loss]


def index(graph: Graph, name: str) -> int:
    return graph.names.index(name)


def op_type(graph: Graph, name: str) -> str:
    return graph.types[graph.type_of[index(graph, name)]]


def test_ops_stand_in_topological_order_and_edges_carry_bytes() -> None:
    """Every edge leads forward, and the product's edge to Square carries 4 x 3 floats."""
    graph = sources.from_v1(*linear())
    assert (graph.edge_src < graph.edge_dst).all()
    square = index(graph, "Square")
    edge = np.flatnonzero((graph.dst == square) & (graph.src == index(graph, "product")))
    # Square(y) reads y; the gradient of Square is another op: one edge, 4 * 3 * 4 bytes.
    assert graph.tensor_bytes[graph.tensor[edge]].tolist() == [48]


def test_pruned_to_the_fetches() -> None:
    """An op that no fetch needs is left out, initialisers among them."""
    graph, fetches = linear()
    whole = sources.from_v1(graph, fetches)
    forward = sources.from_v1(graph, ["loss:0"])
    assert "product" in forward.names and "train" not in forward.names
    assert forward.ops < whole.ops < len(graph.get_operations())
    assert not any("Initializer" in name for name in whole.names)


def test_a_tensor_read_twice_by_one_op_is_one_edge() -> None:
    """x * x reads one tensor: one data edge."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [5], name="x")
        tf.multiply(x, x, name="y")
    found = sources.from_v1(graph, ["y"])
    assert found.src.tolist() == [0] and found.dst.tolist() == [1] and found.tensor_bytes[0] == 20


def test_handles_travel_for_nothing_and_hold_their_variables() -> None:
    """A resource edge carries 0 bytes; its handle holds the variable: 8 * 3 floats."""
    graph = sources.from_v1(*linear())
    w = index(graph, "w")
    assert op_type(graph, "w") == "VarHandleOp"
    assert graph.tensor_bytes[graph.tensor_op == w].tolist() == [0]
    # w and its slots m and v hold 96 bytes each, Adam's two powers of beta 4 each.
    assert graph.param_bytes[w] == 96 and graph.param_bytes.sum() == 3 * 96 + 2 * 4


@pytest.mark.parametrize("resource", [True, False])
def test_adam_slots_share_their_variables_group(resource: bool) -> None:
    """One update op touches variable, m and v, so all of them are one group; feeds are in none."""
    graph = sources.from_v1(*linear(resource=resource))
    slots = [index(graph, name) for name in ("w", "w/Adam", "w/Adam_1")]
    update = next(i for i in range(graph.ops) if "ApplyAdam" in graph.types[graph.type_of[i]])
    assert len({int(graph.group[i]) for i in (*slots, update)}) == 1
    assert graph.group[slots[0]] >= 0 and graph.group[index(graph, "x")] == -1


def test_colocation_binds_only_where_there_are_references() -> None:
    """`_class` joins two ops with references; on plain ops it is a leftover and joins nothing."""
    graph = tf.Graph()
    with graph.as_default():
        a = v1.get_variable("a", [2], use_resource=False)
        with graph.colocate_with(a.op):
            b = v1.get_variable("b", [2], use_resource=False)
        p = tf.ones([2], name="p") + 1.0
        with graph.colocate_with(p.op):
            q = tf.add(p, 2.0, name="q")
        tf.group(a.assign_add(q), b.assign_add(q), name="step")
    found = sources.from_v1(graph, ["step"])
    assert found.group[index(found, "a")] == found.group[index(found, "b")] >= 0
    assert found.group[index(found, "q")] == -1


def test_keras_groups_hold_each_variable_with_its_updates() -> None:
    """Keras' Adam updates each slot by an op of its own: every handle has a group with its reads and updates."""
    graph = sources.from_keras(keras_model(), 4)
    handles = [i for i in range(graph.ops) if graph.types[graph.type_of[i]] == "VarHandleOp"]
    assert len(handles) > 8
    for e in range(len(graph.src)):
        if graph.src[e] in handles:
            assert graph.group[graph.src[e]] == graph.group[graph.dst[e]] >= 0


def keras_model() -> Any:
    import keras

    layers = [
        keras.Input((8,)),
        keras.layers.Dense(5, "relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(3),
    ]
    model = keras.Sequential(layers)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model


def test_group_numbers_follow_first_members() -> None:
    """Labels 7, 3, 7, 3, 9: groups 0 and 1 by first member, 9 alone is -1."""
    assert number_groups(np.array([7, 3, 7, 3, 9])).tolist() == [0, 1, 0, 1, -1]


def test_unknown_shape_names_op_and_remedy() -> None:
    """A batch of None is refused with the first op that has it and --batch as the remedy."""
    with pytest.raises(InputError, match=r"output 0 of op x \(Placeholder\) is \[\?, 8\].*give a batch size"):
        sources.from_v1(*linear(batch=None))


def test_batch_gives_the_work_and_bytes_of_the_static_graph() -> None:
    """With --batch 4 the product costs what it costs with a static 4: 2*4*8*3 flops, 48 bytes."""
    open_ = sources.from_v1(*linear(batch=None), batch=4)
    product = index(open_, "product")
    assert open_.flops[product] == 2 * 4 * 8 * 3
    assert open_.tensor_bytes[open_.tensor_op == product].tolist() == [48]


def test_batch_leaves_other_open_dimensions_an_error() -> None:
    """A second open dimension is named, even when a batch is given."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [None, None, 8], name="x")
        tf.reduce_sum(x, name="y")
    with pytest.raises(InputError, match=r"op x .*\[4, \?, 8\] even with batch 4"):
        sources.from_v1(graph, ["y"], batch=4)
    with pytest.raises(InputError, match="at least 1"):
        sources.from_v1(graph, ["y"], batch=0)


def test_sizes_that_depend_on_data_get_their_upper_bound(caplog: pytest.LogCaptureFixture) -> None:
    """Unique of 6 ids gives at most 6; what gathers by it is 6 x 3 floats; a warning says so."""
    graph = tf.Graph()
    with graph.as_default():
        ids = v1.placeholder(tf.int32, [6], name="ids")
        table = v1.get_variable("table", [100, 3], use_resource=True)
        rows = tf.gather(table, tf.unique(ids, name="few").y, name="rows")
        tf.square(rows, name="y")
    found = sources.from_v1(graph, ["y"])
    assert found.tensor_bytes[found.tensor_op == index(found, "few")].tolist() == [24, 24]
    assert found.tensor_bytes[found.tensor_op == index(found, "y")].tolist() == [72]
    assert "op few" in caplog.text


def test_strings_and_feeds_stay_on_the_host_and_matmuls_need_not() -> None:
    """Feeds and strings run on the CPU only; a float product on both kinds, an integer one on CPUs only."""
    graph = tf.Graph()
    with graph.as_default():
        text = v1.placeholder(tf.string, [4], name="text")
        number = tf.strings.to_number(text, name="number")
        tf.matmul(tf.reshape(number, [2, 2]), tf.ones([2, 2]), name="product")
        whole = tf.cast(tf.reshape(number, [2, 2]), tf.int64)
        tf.matmul(whole, whole, name="integers")
    found = sources.from_v1(graph, ["product", "integers"])
    on_gpu = {name: bool(r) for name, r in zip(found.names, found.runs_on[:, found.kinds.index("gpu")], strict=True)}
    assert (on_gpu["text"], on_gpu["number"], on_gpu["product"], on_gpu["integers"]) == (False, False, True, False)
    assert found.runs_on[:, found.kinds.index("cpu")].all()


def test_a_lookup_table_and_its_users_share_a_device_kind() -> None:
    """A hash table lives on the host and takes its lookups with it."""
    graph = tf.Graph()
    with graph.as_default():
        keys = tf.constant([1, 2], tf.int64)
        made = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, keys), -1)
        ids = v1.placeholder(tf.int64, [4], name="ids")
        tf.identity(made.lookup(ids), name="y")
    found = sources.from_v1(graph, ["y"])
    find = next(i for i in range(found.ops) if found.types[found.type_of[i]] == "LookupTableFindV2")
    members = found.group == found.group[find]
    assert members.sum() == 2 and found.runs_on[members].all(axis=0).tolist() == [True, False]


def test_the_kernel_table_is_that_of_the_running_build() -> None:
    """Where this TensorFlow registers GPU kernels, the shipped table says the same of every op type."""
    found = kernels.export_table()
    if "MatMul" not in {k.op for k in private.registered_kernels() if k.device_type == "GPU"}:
        pytest.skip("a build without GPU kernels")
    shipped = kernels._load_kernel_table()
    assert set(found["gpu"]) == set(shipped["gpu"])
    assert set(found["cpu_only"]) == shipped["cpu_only"]


def test_recursion_and_missing_inputs_are_refused() -> None:
    """A dangling input and a repeated name get one line each."""
    graph_def = linear()[0].as_graph_def()
    broken = type(graph_def)()
    broken.node.add(name="a", op="Identity", input=["nowhere"]).attr["T"].type = 1
    with pytest.raises(InputError, match="nowhere"):
        sources.capture_graph_def(broken, (), "test")
    twice = type(graph_def)()
    twice.node.add(name="a", op="NoOp")
    twice.node.add(name="a", op="NoOp")
    with pytest.raises(InputError, match="a"):
        sources.capture_graph_def(twice, (), "test")


def test_two_traces_of_one_program_have_one_fingerprint() -> None:
    """Keras names its ops anew in every trace of a process; the fingerprint does not see names."""
    first, second = (sources.from_keras(keras_model(), 4) for _ in range(2))
    assert first.names != second.names and first.fingerprint() == second.fingerprint()
    other = sources.from_keras(keras_model(), 8)
    assert other.fingerprint() != first.fingerprint()


def test_a_deep_graph_does_not_recurse() -> None:
    """A chain of 3 000 ops imports (Python's recursion limit is 1 000)."""
    graph = tf.Graph()
    with graph.as_default():
        y = v1.placeholder(tf.float32, [2], name="x")
        for _ in range(3000):
            y = tf.raw_ops.Neg(x=y)
    found = importer.build_graph(sources.capture_v1(graph, [y]))
    assert found.ops == 3001 and found.flops.sum() == 6000


@pytest.mark.parametrize("optimizer", ["GradientDescent", "Adam", "Momentum"])
def test_a_fingerprint_survives_another_learning_rate_and_no_other_batch(optimizer: str, tmp_path: Path) -> None:
    """Pesto, 3.1: a profile holds for other learning rates, not for other batches; it is refused for these."""

    def step(rate: float, batch: int) -> Graph:
        graph = tf.Graph()
        with graph.as_default():
            x = v1.placeholder(tf.float32, [batch, 8], name="x")
            w = v1.get_variable("w", [8, 3], use_resource=True)
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w)), name="loss")
            rates = {"momentum": 0.9} if optimizer == "Momentum" else {}
            train = getattr(v1.train, f"{optimizer}Optimizer")(rate, **rates).minimize(loss, name="train")
        return sources.from_v1(graph, [train, loss])

    known, slower, larger = step(0.1, 4), step(0.001, 4), step(0.1, 8)
    assert known.fingerprint() == slower.fingerprint() != larger.fingerprint()
    nothing = np.zeros(known.ops)
    profile = Profile(
        fingerprint=known.fingerprint(), kind="cpu", device="a core", iterations=2, seconds=nothing + 1e-3,
        spread=nothing, raw_spread=nothing, source="test",
    )  # fmt: skip
    save_profile(tmp_path / "p.json", profile, known)
    assert load_profile(tmp_path / "p.json", slower).seconds.tolist() == profile.seconds.tolist()
    with pytest.raises(MismatchError, match="the profile is of graph"):
        load_profile(tmp_path / "p.json", larger)


def test_an_open_feed_is_named_before_what_a_queue_gives():
    """Shapes can be given for feeds; of what a queue gives a size must be stated in the program."""
    tf1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        rows = tf1.FIFOQueue(8, [tf.float32]).dequeue(name="rows")
        given = tf1.placeholder(tf.float32, name="given")
        total = tf.reduce_sum(rows) + tf.reduce_sum(given)
    with pytest.raises(InputError, match=r"given .*unknown rank.*shapes of the feeds"):
        sources.from_v1(graph, [total])
    with graph.as_default():
        fixed = tf.reduce_sum(rows) + tf.reduce_sum(tf.ensure_shape(given, [4]))
    with pytest.raises(InputError, match=r"rows .*QueueDequeue.*ensure_shape"):
        sources.from_v1(graph, [fixed])
