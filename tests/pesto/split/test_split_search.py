"""Steps divided: what is planned is what is counted, the least there is, and no worse by more freedom."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner, Result

from pesto.cli.main import pesto
from pesto.core.errors import InputError, UsageError
from pesto.core.source import Source
from pesto.split import geometry
from pesto.split.division import Division, moved_bytes
from pesto.split.files.typed_graph_file import save_typed_graph
from pesto.split.geometry import ONE, WHOLE
from pesto.split.methods import cut_methods
from pesto.split.program import CutGain, Rules, build_program, cut_though_small
from pesto.split.split_search import divide, parse_factors
from pesto.split.typed_graph import Operand, Signature, TypedGraph
from pesto.tf import named_sources
from pesto.tf.shaping.shaping import shape
from pesto.tf.sources import sources


@pytest.fixture(scope="module")
def nmt():
    return named_sources.load_typed(Source(model="nmt", variant="tiny"))


def run(*words: object) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(pesto, [str(word) for word in words])


def step(layers, batch=8, width=8):
    """A chain of matmuls: x, weights that are read, and products; weights are no variables here, but fed."""
    matrix = ((batch, width), "float32")
    fed = Signature("Placeholder", (("dtype", "float32"),), (), (matrix,))
    weight = Signature("Neg", (), (Operand((width, width), "float32"),), (((width, width), "float32"),))
    source = Signature("Placeholder", (("dtype", "float32"), ("w", 1)), (), (((width, width), "float32"),))
    times = Signature("MatMul", (), (Operand(*matrix), Operand((width, width), "float32")), (matrix,))
    kinds, names, edges = [fed], ["x"], []
    last = 0
    for k in range(layers):
        at = len(kinds)
        kinds += [source, weight, times]
        names += [f"w{k}", f"v{k}", f"y{k}"]
        edges += [(at, 0, at + 1, 0), (last, 0, at + 2, 0), (at + 1, 0, at + 2, 1)]
        last = at + 2
    src, output, dst, place = np.array(edges).T
    distinct = list(dict.fromkeys(kinds))
    none = np.empty(0, dtype=np.int64)
    return TypedGraph(
        names=tuple(names), signatures=tuple(distinct), signature_of=np.array([distinct.index(k) for k in kinds]),
        src=src, output=output, dst=dst, input=place, control_src=none, control_dst=none, handle=none, tie=none,
        use_op=none, use_input=none, use_variable=none, once=np.zeros(len(kinds), dtype=bool), source="a chain",
        fingerprint="",
    )  # fmt: skip


def gram(rows, columns):
    """A matrix times itself transposed: one op reads one tensor at two inputs, in two layouts."""
    matrix, square = ((rows, columns), "float32"), ((rows, rows), "float32")
    fed = Signature("Placeholder", (("dtype", "float32"),), (), (matrix,))
    made = Signature("Neg", (), (Operand(*matrix),), (matrix,))
    times = Signature("MatMul", (("transpose_b", True),), (Operand(*matrix), Operand(*matrix)), (square,))
    read = Signature("Neg", (), (Operand(*square),), (square,))
    none = np.empty(0, dtype=np.int64)
    return TypedGraph(
        names=("x", "s", "y", "z"), signatures=(fed, made, times, read), signature_of=np.arange(4),
        src=np.array([0, 1, 1, 2]), output=np.zeros(4, dtype=np.int64), dst=np.array([1, 2, 2, 3]),
        input=np.array([0, 0, 1, 0]), control_src=none, control_dst=none, handle=none, tie=none, use_op=none,
        use_input=none, use_variable=none, once=np.zeros(4, dtype=bool), source="a Gram matrix", fingerprint="",
    )  # fmt: skip


@pytest.mark.parametrize("k", [2, 4])
def test_an_op_that_reads_a_tensor_twice_is_charged_for_both(k):
    """What is counted is what is sent, and the least of all choices; it was nothing."""
    split = divide(gram(8, 64), (k,), "exact", Rules(), seconds=60)
    assert split.status == "optimal"
    assert split.counted_bytes == split.moved_bytes == least(gram(8, 64), k) > 0


def least(shaped, k):
    """By every choice of ways and layouts there is, counted by sets of parts."""
    made = build_program(shaped, None, (k,), Rules())
    best = None
    ways = [range(len(found)) for found in made.strategies]
    kept = [range(len(found[0])) for found in made.layouts]
    for chosen in product(*ways, *kept):
        n = shaped.ops
        division = Division(
            factors=(k,),
            strategies=tuple(found[c] for found, c in zip(made.strategies, chosen[:n], strict=True)),
            kept=tuple((found[0][c],) for found, c in zip(made.layouts, chosen[n:], strict=True)),
            variables=(),
        )
        moved = moved_bytes(shaped, division)
        best = moved if best is None else min(best, moved)
    return best


@pytest.mark.parametrize(("layers", "batch", "width"), [(1, 8, 4), (2, 4, 8), (1, 6, 2)])
def test_the_least_of_all_divisions(layers: int, batch: int, width: int) -> None:
    """Exact sends as little as the best of every combination of ways and layouts."""
    shaped = step(layers, batch, width)
    found = divide(shaped, (2,), "exact", Rules(), seconds=30)
    assert found.status == "optimal" and found.moved_bytes == least(shaped, 2)


@pytest.mark.parametrize("factors", [(2,), pytest.param((4,), marks=pytest.mark.slow), (2, 2)])
def test_planned_is_counted(nmt, factors) -> None:
    """The value of the last cut is what workers receive by the parts that they hold and need."""
    _, shaped = nmt
    exact = divide(shaped, factors, "exact", Rules(), seconds=60)
    greedy = divide(shaped, factors, "greedy", Rules(), seconds=60)
    for found in (exact, greedy):
        assert found.cuts[-1].value == found.moved_bytes == moved_bytes(shaped, found.division)
    assert exact.status == "optimal" and exact.bound_bytes == exact.moved_bytes
    assert exact.cuts[0].value <= greedy.cuts[0].value
    for way, signature in zip(
        exact.division.strategies, (shaped.signature(op) for op in range(shaped.ops)), strict=True
    ):
        for layouts, operand in zip(way.needs, signature.inputs, strict=True):
            assert operand.shape is None or geometry.divides(operand.shape, layouts, factors)


@pytest.mark.slow
def test_a_cut_after_a_cut_sends_more(nmt) -> None:
    """Costs of successive cuts rise; variables that may lie whole cost no more, and each worker holds more of them."""
    _, shaped = nmt
    two = divide(shaped, (2, 2), "exact", Rules(), seconds=60)
    assert two.cuts[0].value <= two.cuts[1].value
    replicated = divide(shaped, (4,), "exact", Rules(replicate=True), seconds=60)
    cut = divide(shaped, (4,), "exact", Rules(), seconds=60)
    assert replicated.moved_bytes <= cut.moved_bytes and replicated.parameter_bytes >= cut.parameter_bytes


def test_ops_that_run_once_run_on_the_first_worker(nmt) -> None:
    """Random numbers are drawn once; slots lie as their variable does."""
    _, shaped = nmt
    found = divide(shaped, (2,), "exact", Rules(), seconds=60).division
    assert {found.strategies[op].names for op in np.flatnonzero(shaped.once)} == {("once",)}
    for v, tie in enumerate(shaped.tie.tolist()):
        assert found.variables[v] == found.variables[tie]
    assert any(layouts != (WHOLE,) for layouts in found.variables)


def test_the_shaped_step_is_the_graph(nmt) -> None:
    """The same ops in the same order, and tensors of as many bytes."""
    graph, shaped = nmt
    assert graph.names == shaped.names and graph.fingerprint() == shaped.fingerprint
    with pytest.raises(InputError, match="goes back"):
        TypedGraph(**{f: getattr(shaped, f) for f in TypedGraph.__slots__} | {"src": shaped.dst, "dst": shaped.src})


def test_variables_that_are_not_seen_through_handles_are_refused() -> None:
    """A reference variable, and a loop that reads one itself; read before the loop it can be divided."""
    graph = tf.Graph()
    with graph.as_default():
        v = tf.compat.v1.get_variable("v", [64, 64], use_resource=False)
        x = tf.compat.v1.placeholder(tf.float32, [64, 64])
        loss = tf.reduce_sum(x @ v)
        train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    with pytest.raises(InputError, match="use_resource=True"):
        shape(sources.capture_v1(graph, [train, loss]))
    w = tf.Variable(tf.ones([64, 64]))

    def step(x, early):
        value = w.read_value() if early else w
        y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y @ value), [tf.constant(0), x])[1]
        w.assign_sub(w * 0.1)
        return tf.reduce_sum(y)

    spec = tf.TensorSpec([64, 64])
    with pytest.raises(InputError, match="hand the value on"):
        shape(sources.capture_function(tf.function(lambda x: step(x, early=False)), spec))
    _, shaped = shape(sources.capture_function(tf.function(lambda x: step(x, early=True)), spec))
    assert divide(shaped, (2,), "exact", Rules(), seconds=20).status == "optimal"


@pytest.mark.parametrize("bad", ["0", "1", "3x", "x", "1000000000", "2x0", "64x64", "-2", "two"])
def test_workers_that_are_none(bad: str) -> None:
    """Numbers of 2 or more joined by x, 1024 workers at most."""
    with pytest.raises(UsageError, match="workers"):
        parse_factors(bad)
    assert parse_factors("2x3") == (2, 3)


def test_workers_that_divide_nothing(nmt) -> None:
    """7 divides no shape of it."""
    with pytest.raises(UsageError, match="nothing in it can be cut in 7"):
        divide(nmt[1], (7,), "exact", Rules(), seconds=10)


def test_the_verb() -> None:
    """One object, a page, the table of op types; what does not go together."""
    words = ("split", "--model", "rnnlm", "--variant", "tiny", "--workers", "2")
    found = json.loads(run(*words, "--json").stdout)
    assert found["workers"] == 2 and found["status"] == "optimal" and found["bytes"] == found["bound_bytes"] > 0
    assert found["uncovered"] == [] and found["makespan_s"] is None and found["params_per_worker_bytes"] > 0
    page = run(*words).output
    assert "no other cut sends less" in page and "MatMul" in page
    assert "contraction" in run("split", "ops").output
    uncovered = ("split", "ops", "--uncovered", "--model", "rnnlm", "--variant", "tiny", "--json")
    assert json.loads(run(*uncovered).stdout) == {"ops": []}
    for wrong in (("--model", "nmt"), ("--model", "nmt", "--workers", "2", "--uncovered")):
        assert isinstance(run("split", *wrong).exception, UsageError)


def test_shapes_are_read_without_elements():
    """An op that asks for a tensor's shape alone is sent nothing."""
    asked = Signature("Shape", (), (Operand((8, 8), "float32"),), (((2,), "int32"),))
    chain = step(2)
    kinds = (*chain.signatures, asked)
    more = replace(
        chain, names=(*chain.names, "shape"), signatures=kinds,
        signature_of=np.append(chain.signature_of, len(kinds) - 1), src=np.append(chain.src, chain.ops - 1),
        output=np.append(chain.output, 0), dst=np.append(chain.dst, chain.ops), input=np.append(chain.input, 0),
        once=np.append(chain.once, [False]),
    )  # fmt: skip
    one, other = (divide(each, (2,), "exact", Rules(), seconds=10) for each in (chain, more))
    assert one.moved_bytes == other.moved_bytes
    assert one.cuts[0].value == other.cuts[0].value


def test_all_cuts_at_once() -> None:
    """Joint sends no more than cut after cut, and no less than its bound, which is not above either."""
    for layers, batch, width in ((2, 8, 8), (3, 4, 16), (1, 16, 4)):
        shaped = step(layers, batch, width)
        one, all_ = (divide(shaped, (2, 2), method, Rules(), seconds=20) for method in ("exact", "joint"))
        assert all_.bound_bytes <= all_.counted_bytes <= one.counted_bytes
        assert all_.moved_bytes == moved_bytes(shaped, all_.division)
    assert divide(shaped, (4,), "joint", Rules(), seconds=20).status == "optimal"


def test_one_cut_is_chosen_anew_with_the_others_as_they_are(monkeypatch) -> None:
    """One cut is chosen anew: the input keeps the three of its nine layouts that leave the other cut as it was."""
    problems = []

    def recorded(problem, keep):
        problems.append(keep)
        return narrowed(problem, keep)

    narrowed = cut_methods.narrowed
    monkeypatch.setattr(cut_methods, "narrowed", recorded)
    shaped = step(1)
    program = build_program(shaped, None, (2, 2), Rules())
    layouts, first = program.layouts[0][0], program.problem.first[program.tensor[0][0]]
    assert set(layouts) == set(product((WHOLE, 0, 1), repeat=2)) and program.tensor[0][0] == 0
    divide(shaped, (2, 2), "joint", Rules(), seconds=600)
    assert len(problems) >= 2
    for at, keep in enumerate(problems[:2]):
        kept = [layouts[k] for k in range(9) if keep[first + k]]
        assert len(kept) == 3 and len({each[1 - at] for each in kept}) == 1


def test_a_handle_is_where_its_variable_is() -> None:
    """On one worker with the variable, or on all with their parts: of the first variable as of the second."""
    handle = Signature("VarHandleOp", (), (), (((), "resource"),))
    read = Signature("ReadVariableOp", (), (Operand((64, 64), "resource:float32"),), (((64, 64), "float32"),))
    none, two = np.empty(0, dtype=np.int64), np.arange(2)
    shaped = TypedGraph(
        names=("v", "w", "rv", "rw"), signatures=(handle, read), signature_of=np.array([0, 0, 1, 1]), src=two,
        output=0 * two, dst=two + 2, input=0 * two, control_src=none, control_dst=none, handle=two, tie=two,
        use_op=two + 2, use_input=0 * two, use_variable=two, once=np.zeros(4, dtype=bool), source="two variables",
        fingerprint="",
    )  # fmt: skip
    program = build_program(shaped, None, (2,), Rules(partial=True), gain=CutGain(worth=[10**9] * 4))
    for v in (0, 1):
        assert (ONE,) in program.tied[v] and len(program.tied[v]) > 1
        where = tuple((ONE,) if ONE in layouts else (WHOLE,) for layouts in program.tied[v])
        assert program.layouts[v] == (where,)
        assert program.tensor[v] == (program.tie[v],) and program.op[v] == program.tie[v]
        assert tuple(strategy.gives for strategy in program.strategies[v]) == tuple((each,) for each in where)


def test_small_variables_are_cut_where_they_are_much_of_all() -> None:
    """The largest of the small ones, each with its slot, until what is left is no more than the share.

    Bytes of a variable and its slot: 8000, then small 160, 80, 40. All that is small is 280 of 8280, 3.4 %; without the
    first it is 120, 1.4 %, and without two 40, 0.48 %.
    """
    sizes = [1000, 20, 10, 5]
    kinds = [
        Signature("ReadVariableOp", (), (Operand((size,), "resource:float32"),), (((size,), "float32"),))
        for size in sizes
    ]
    handle = Signature("VarHandleOp", (), (), (((), "resource"),))
    none, uses = np.empty(0, dtype=np.int64), np.arange(8)
    shaped = TypedGraph(
        names=tuple(f"op{k}" for k in range(16)), signatures=(handle, *kinds),
        signature_of=np.concatenate([np.zeros(8, dtype=np.int64), 1 + uses // 2]),
        src=uses, output=0 * uses, dst=uses + 8, input=0 * uses, control_src=none, control_dst=none,
        handle=uses, tie=uses // 2, use_op=uses + 8, use_input=0 * uses, use_variable=uses,
        once=np.zeros(16, dtype=bool), source="variables", fingerprint="",
    )  # fmt: skip
    cut = [sorted(cut_though_small(shaped, 1000, share)) for share in (0.04, 0.02, 0.01, 0.001)]
    assert cut == [[], [1], [1, 2], [1, 2, 3]]
    assert not cut_though_small(shaped, 20, 0.001)


def test_quiet_split_prints_nothing_and_writes_its_file(tmp_path: Path) -> None:
    found, shapes = tmp_path / "split.json", tmp_path / "chain.shaped.json"
    save_typed_graph(step(2), shapes)
    done = run("split", shapes, "--workers", 2, "-q", "-o", found)
    assert (done.exit_code, done.output) == (0, "") and found.exists()
    assert run("split", shapes, "--workers", 2).output
