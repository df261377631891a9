"""An IdentityN holds nothing up: its readers read what it passes, in the planned graph and in the one that runs."""

from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.enforce.edits import GraphEdits, apply_edits  # noqa: E402
from pesto.tf.nodes.captured import bypass_barriers, find_barriers, find_source_tensor  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load


def graph_of(build):
    """A graph of `build(a, b)`, two placeholders."""
    graph = tf.Graph()
    with graph.as_default():
        build(*(v1.placeholder(tf.float32, [2], name=name) for name in "ab"))
    return graph


def inputs_of(graph_def):
    """{node: its inputs}."""
    return {node.name: list(node.input) for node in graph_def.node}


def pair(a, b):
    """Both pass one barrier; then one, alone and once more, a second."""
    first = tf.raw_ops.IdentityN(input=[a, b], name="first")
    second = tf.raw_ops.IdentityN(input=[first[1], first[1]], name="second")
    with tf.control_dependencies([second[0].op]):
        tf.negative(first[0], name="left")
    tf.add(second[0], second[1], name="right")


def test_readers_read_what_passes():
    """Output k of a barrier is its input k, through several; who waited for a barrier waits for all that pass it."""
    graph_def = graph_of(pair).as_graph_def()
    passed = find_barriers(graph_def)
    assert passed == {"first": ("a", "b"), "second": ("first:1", "first:1")}
    assert find_source_tensor("second:1", passed) == "b"
    bypass_barriers(graph_def, passed)
    assert inputs_of(graph_def)["right"] == ["b", "b"]
    assert inputs_of(graph_def)["left"] == ["a", "^b"]


def test_a_step_is_planned_without_them():
    """Neither is an op of the graph; one that is fetched is, and holds up nobody else."""
    graph = graph_of(pair)
    assert set(sources.from_v1(graph, ["left", "right"]).names) == {"a", "b", "left", "right"}
    fetched = sources.from_v1(graph, ["first", "right"])
    assert set(fetched.names) == {"a", "b", "first", "right"}
    read = {(fetched.names[s], fetched.names[d]) for s, d in zip(fetched.src, fetched.dst, strict=True)}
    assert read == {("a", "first"), ("b", "first"), ("b", "right")}


def test_one_that_waits_stays():
    """Its control inputs order its readers behind them."""

    def build(a, b):
        with tf.control_dependencies([tf.negative(a, name="before")]):
            kept = tf.raw_ops.IdentityN(input=[a, b], name="kept")
        tf.negative(kept[1], name="left")

    graph = graph_of(build)
    assert find_barriers(graph.as_graph_def()) == {}
    assert "kept" in sources.from_v1(graph, ["left"]).names


def test_one_of_references_stays():
    """It copies what a reference variable holds then; later readers would see later values."""

    def build(a, b):
        w = v1.get_variable("w", [2], use_resource=False)
        kept = tf.raw_ops.IdentityN(input=[w._ref(), b], name="kept")
        tf.negative(kept[0], name="left")

    assert find_barriers(graph_of(build).as_graph_def()) == {}


def branched(a, b):
    """Two barriers in a branch: of what that branch alone has, and of what is there whether it is taken or not."""
    taken = tf.greater(tf.reduce_sum(a), 0, name="taken")
    dead, alive = tf.raw_ops.Switch(data=b, pred=taken)
    inside = tf.raw_ops.IdentityN(input=[alive, tf.negative(alive)], name="inside")
    across = tf.raw_ops.IdentityN(input=[a, dead], name="across")
    tf.raw_ops.Merge(inputs=[tf.negative(inside[1]), tf.negative(across[0])], name="merged")


def test_one_that_may_be_dead_alone_stays():
    """Its readers are dead with it, though what it passes them is not: of two branches one gives what is merged."""
    graph = graph_of(branched)
    assert set(find_barriers(graph.as_graph_def())) == {"inside"}
    graph_def = graph.as_graph_def()
    bypass_barriers(graph_def, find_barriers(graph_def))
    led = tf.Graph()
    with led.as_default():
        tf.import_graph_def(graph_def, name="")
    plain = v1.ConfigProto()
    plain.graph_options.rewrite_options.disable_meta_optimizer = True  # Grappler goes around it all the same
    for a in ([1, 1], [-1, -1]):
        given = {"a:0": a, "b:0": [2, 3]}
        found = [v1.Session(graph=each, config=plain).run("merged:0", given).tolist() for each in (graph, led)]
        assert found[0] == found[1] == ([2, 3] if a[0] > 0 else [1, 1])


def test_a_conditional_keeps_its_barriers_readers():
    """As tf.cond makes one: all that a barrier in a branch passes is of that branch."""
    v1.disable_control_flow_v2()
    try:
        graph = graph_of(
            lambda a, b: tf.identity(
                v1.cond(tf.greater(a[0], 0), lambda: tf.raw_ops.IdentityN(input=[a, b])[0], lambda: b), name="out"
            )
        )
    finally:
        v1.enable_control_flow_v2()
    assert any(node.op == "Merge" for node in graph.as_graph_def().node)
    assert [len(inputs) for inputs in find_barriers(graph.as_graph_def()).values()] == [2]


def test_a_live_graph_is_led_around_and_back():
    """The ops of the graph in memory read and wait for the same as those of its GraphDef; undone, for what they did."""
    graph = graph_of(pair)
    before = inputs_of(graph.as_graph_def())
    wanted = graph.as_graph_def()
    passed = find_barriers(wanted)
    bypass_barriers(wanted, passed)
    undo = apply_edits(graph, GraphEdits(passed=passed))
    now, then = inputs_of(graph.as_graph_def()), inputs_of(wanted)
    assert {name: now[name] for name in ("left", "right")} == {name: then[name] for name in ("left", "right")}
    undo()
    assert inputs_of(graph.as_graph_def()) == before
