"""A branch around an optimizer in a GraphDef file is divided into one for each variable, planned and written."""

import numpy as np
import pytest
from click.testing import CliRunner

import pesto
from pesto.cli.main import pesto as command
from pesto.core.errors import Exit, MismatchError
from pesto.core.plans import plan_file
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs import api

tf = load_tensorflow()
v1 = tf.compat.v1

from pesto.tf.apply_placement.targets import ApplyOptions  # noqa: E402
from pesto.tf.enforce.rewrite import rewrite_with_report  # noqa: E402
from pesto.tf.sources import sources  # noqa: E402  # after the quiet load

SIZE = 4


def accumulating():
    """A v1 graph that adds gradients up and applies their sum in every second step, in one `If`."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2, SIZE], name="x")
        weights = [v1.get_variable(f"w{k}", [SIZE, SIZE], use_resource=True) for k in range(3)]
        sums = [v1.get_variable(f"s{k}", [SIZE, SIZE], use_resource=True, trainable=False) for k in range(3)]
        step = v1.get_variable("step", [], tf.int64, trainable=False, use_resource=True)
        loss = tf.add_n([tf.reduce_mean(tf.tanh(x @ w)) for w in weights], name="loss")
        gradients = tf.gradients(loss, weights)

        def update():
            done = []
            for w, s, g in zip(weights, sums, gradients, strict=True):
                with tf.control_dependencies([w.assign_sub(0.1 * (s + g))]):
                    done.append(s.assign(tf.zeros_like(s)))
            return tf.group(*done)

        branch = tf.cond(
            tf.equal(step % 2, 1),
            update,
            lambda: tf.group(*[s.assign_add(g) for s, g in zip(sums, gradients, strict=True)]),
        )
        with tf.control_dependencies([getattr(branch, "op", branch)]):
            tf.group(step.assign_add(1), name="train")
        values = [*weights, *sums, step]
        starts = [v.assign(np.sin(np.arange(np.prod(v.shape)).reshape(v.shape) + k)) for k, v in enumerate(values[:-1])]
        tf.group(*starts, step.assign(0), name="start")
    return graph, [v.op.name for v in values]


def steps_of(graph_def, names):
    """The losses of five steps, and all variables after them."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        handles = [graph.get_tensor_by_name(f"{name}:0") for name in names]
        dtypes = [graph.get_operation_by_name(name).get_attr("dtype") for name in names]
        reads = [tf.raw_ops.ReadVariableOp(resource=h, dtype=t) for h, t in zip(handles, dtypes, strict=True)]
    config = v1.ConfigProto(device_count={"CPU": 3})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with v1.Session(graph=graph, config=config) as session:
        session.run("start")
        x = np.cos(np.arange(2 * SIZE, dtype=np.float32)).reshape(2, SIZE)
        found = [session.run(["loss:0", "train"], {"x:0": x * (k + 1)})[0] for k in range(5)]
        return [value.tobytes() for value in (*found, *session.run(reads))]


def branch_ops(graph_def):
    """Names of the branch ops in a graph."""
    return [node.name for node in graph_def.node if node.op == "If"]


@pytest.fixture(scope="module")
def program():
    """The program's GraphDef, and the names of its variables."""
    graph, names = accumulating()
    return graph.as_graph_def(add_shapes=True), names


def test_a_file_is_divided_and_rewritten_bit_for_bit(program, tmp_path):
    """Each variable has a branch of its own, which the rewritten GraphDef has in the place of the one."""
    graph_def, names = program
    file = tmp_path / "step.pb"
    file.write_bytes(graph_def.SerializeToString())
    step = sources.from_graph_def_file(file, ["loss", "train"])
    assert branch_ops(graph_def) == ["cond"] and "cond" not in step.names
    plan = pesto.solve(step, cluster="v100x2-nvlink", time_limit_s=0)
    devices = {"cpu:0": "/device:CPU:0", "gpu:0": "/device:CPU:1", "gpu:1": "/device:CPU:2"}
    done = rewrite_with_report(graph_def, plan, ApplyOptions(devices=devices))
    assert sorted(branch_ops(done.graph_def)) == [f"cond/pesto_part_{k}" for k in range(4)]  # one for what it returns
    assert "cond" in done.gone
    assert steps_of(done.graph_def, names) == steps_of(graph_def, names)


def test_a_live_v1_graph_stays_whole(program):
    """A session may fetch, feed or wait for any op of its graph, so none is taken out; the same for its GraphDef."""
    graph, _ = accumulating()
    step = sources.from_v1(graph, ["loss", "train"])
    assert "cond" in step.names
    plan = pesto.solve(step, cluster="v100x2-nvlink", time_limit_s=0)
    devices = {"cpu:0": "/device:CPU:0", "gpu:0": "/device:CPU:1", "gpu:1": "/device:CPU:2"}
    assert branch_ops(api.rewrite(program[0], plan, devices=devices)) == ["cond"]


def test_a_branch_that_is_fetched_stays_whole(program):
    """Who fetches it by its name has it by its name."""
    step = sources.capture_graph_def(program[0], ["loss", "cond"], "the graph")
    assert branch_ops(step.graph_def) == ["cond"]


def test_a_plan_of_the_whole_branch_is_refused_and_carried_over(program, tmp_path, monkeypatch):
    """As older versions planned files; the remedy that is given, `pesto solve --start`, makes a plan that is taken."""
    monkeypatch.chdir(tmp_path)
    graph, _ = accumulating()
    (tmp_path / "step.pb").write_bytes(program[0].SerializeToString())
    step = sources.from_v1(graph, ["loss", "train"], source="file step.pb")
    plan_file.save(pesto.solve(step, cluster="cpux2", time_limit_s=0, solver="list"), tmp_path / "old.json")

    def called(*words):
        return CliRunner().invoke(command, [*words, "--graph", "step.pb", "--fetch", "loss", "--fetch", "train"])

    for verb in (("check",), ("simulate",), ("explain",), ("report", "-o", "page.html"), ("draw",), ("run",)):
        refused = called(verb[0], "old.json", *verb[1:])
        assert isinstance(refused.exception, MismatchError), (verb, refused.output, refused.exception)
        assert str(refused.exception).endswith(
            ": its branch cond is divided into one for each variable, and whole in the plan, as older versions left it"
            " - solve this one again, starting from the plan"
        )
    quick = ("--cluster", "cpux2", "--time-limit", "0", "--solver", "list", "-q", "-o", "new.json")
    assert called("solve", "--start", "old.json", *quick).exit_code == Exit.OK
    assert called("check", "new.json").exit_code == Exit.OK
