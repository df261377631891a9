"""Methods of splits: every one gives a division that can be built, counted alike; all cuts at once send no more."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pesto.core.errors import NothingFoundError, PestoError
from pesto.core.source import Source
from pesto.split import geometry
from pesto.split.division import moved_bytes
from pesto.split.geometry import WHOLE
from pesto.split.methods import cut_methods
from pesto.split.methods.coarse_graph import coarsen_labelling, forward_ops
from pesto.split.methods.cut_methods import METHODS
from pesto.split.program import Rules, build_program
from pesto.split.split_search import divide
from pesto.split.worker_parts import build_worker_parts
from pesto.tf import named_sources
from pesto.tf.shaping.shaping import shape
from pesto.tf.sources.sources import capture_v1
from pesto.tf.tensorflow_start import load_tensorflow

tf = load_tensorflow()
v1 = tf.compat.v1


@pytest.fixture(scope="module")
def rnnlm():
    return named_sources.load_typed(Source(model="rnnlm", variant="tiny"))[1]


@pytest.fixture(scope="module")
def transformer():
    return named_sources.load_typed(Source(model="transformer", variant="tiny"))[1]


def valid(shaped, found):
    """What a division must hold: cuts divide, ties agree, ops take variables as they lie, bytes are those of parts."""
    division = found.division
    for op, way in enumerate(division.strategies):
        signature = shaped.signature(op)
        operands = [(operand.shape, layouts) for operand, layouts in zip(signature.inputs, way.needs, strict=True)]
        operands += [(shape, layouts) for (shape, _), layouts in zip(signature.outputs, division.kept[op], strict=True)]
        assert all(shape is None or geometry.divides(shape, lay, division.factors) for shape, lay in operands)
    for v, tie in enumerate(shaped.tie.tolist()):
        assert division.variables[v] == division.variables[tie]
    for op, at, v in zip(shaped.use_op.tolist(), shaped.use_input.tolist(), shaped.use_variable.tolist(), strict=True):
        assert division.strategies[op].needs[at] == division.variables[v]
    assert found.bound_bytes <= found.counted_bytes and found.moved_bytes <= found.counted_bytes
    assert found.moved_bytes == moved_bytes(shaped, division) == build_worker_parts(shaped, division).moved_bytes()


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"exact", "greedy", "joint", "megatron"}))
def test_every_method_divides(rnnlm, method: str) -> None:
    """No method but exact and joint has a bound; exact sends no more in the first cut, unless variables are whole."""
    found = divide(rnnlm, (2,), method, Rules(), seconds=30)
    valid(rnnlm, found)
    assert found.bound_bytes == 0 and found.status == "feasible" and found.method == method
    if not METHODS[method].replicates:
        assert found.moved_bytes >= divide(rnnlm, (2,), "exact", Rules(), seconds=30).moved_bytes


def test_two_cuts(rnnlm) -> None:
    """Cut after cut by Tofu; chop makes one of them."""
    valid(rnnlm, divide(rnnlm, (2, 2), "tofu", Rules(), seconds=30))
    assert divide(rnnlm, (2, 2), "chop", Rules(), seconds=30).division.factors == (4,)


@pytest.mark.slow
def test_all_cuts_of_a_step_at_once(rnnlm) -> None:
    """It sends less than cut after cut, and its bound is of all of them."""
    one, all_ = (divide(rnnlm, (2, 2, 2), method, Rules(), seconds=60) for method in ("exact", "joint"))
    valid(rnnlm, all_)
    assert 0 < all_.bound_bytes <= all_.counted_bytes < one.counted_bytes


@pytest.mark.parametrize(
    ("method", "module", "factors"),
    [("tofu", cut_methods, (2,)), pytest.param("joint", cut_methods, (2, 2), marks=pytest.mark.slow)],
)
def test_deterministic_methods_look_at_no_clock(rnnlm, monkeypatch, method, module, factors) -> None:
    """The same ways where an hour goes by at each look; by the clock, nothing would be left to choose exactly."""
    calm = divide(rnnlm, factors, method, Rules(), seconds=30, deterministic=True)
    moments = itertools.count(0.0, 3600.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    hurried = divide(rnnlm, factors, method, Rules(), seconds=30, deterministic=True)
    assert hurried.division == calm.division and hurried.bound_bytes == calm.bound_bytes


def test_data_parallel_has_whole_variables(rnnlm) -> None:
    """Every variable lies whole on every worker, and matmuls are cut along rows or summed; 3 divides no batch of 8."""
    found = divide(rnnlm, (2,), "data-parallel", Rules(), seconds=30)
    assert set(found.division.variables) == {(WHOLE,)}
    large = [op for op in range(rnnlm.ops) if rnnlm.signature(op).type == "MatMul" and "/step_" in rnnlm.names[op]]
    names = [found.division.strategies[op].names[0] for op in large]
    assert set(names) <= {"m", "k", "whole"} and names.count("whole") < len(names) / 10
    with pytest.raises(NothingFoundError, match="no batch"):
        divide(rnnlm, (3,), "data-parallel", Rules(), seconds=30)


@pytest.mark.parametrize(
    ("shapes", "workers", "batch"),
    [
        ([(64, 100), (64, 100)], 8, 64),  # the features are more, and 8 does not divide them
        ([(64, 3, 224, 224)], 8, 64),
        ([(64, 16), (64, 3), (64, 3)], 8, 64),
        ([(64, 16), (64,), (100, 100)], 8, 64),  # one is no example of a batch: it stays whole
        ([(35, 64, 20), (64,)], 8, 64),  # time steps first
    ],
)
def test_the_batch_of_what_is_fed(shapes, workers, batch) -> None:
    """The extent that most have, and with which most begin; each worker has its share of that."""
    with tf.Graph().as_default() as graph:
        fed = [v1.placeholder(tf.float32, extents, name=f"fed{at}") for at, extents in enumerate(shapes)]
        sums = [tf.reduce_sum(tf.square(each), name=f"sum{at}") for at, each in enumerate(fed)]
        captured = capture_v1(graph, [tf.add_n(sums, name="loss")], source="a test")
    _, shaped = shape(captured)
    found = divide(shaped, (workers,), "data-parallel", Rules(), seconds=30)
    for at, extents in enumerate(shapes):
        square = found.division.strategies[shaped.names.index("Square" if at == 0 else f"Square_{at}")]
        assert square.needs[0] == ((extents.index(batch) if batch in extents else WHOLE),)


@pytest.mark.slow
def test_pairs_of_matmuls(transformer, rnnlm) -> None:
    """Transformers' weights are cut by columns and by rows, whole elsewhere; an LSTM has no such pair, and says so."""
    found = divide(transformer, (2,), "megatron", Rules(), seconds=30)
    valid(transformer, found)
    cuts = {layouts[0] for layouts in found.division.variables}
    assert cuts == {WHOLE, 0, 1}
    renamed = replace(transformer, names=tuple(f"op_{op}" for op in range(transformer.ops)))
    assert divide(renamed, (2,), "megatron", Rules(), seconds=30).moved_bytes == found.moved_bytes
    with pytest.raises(NothingFoundError, match="no pair of matmuls"):
        divide(rnnlm, (2,), "megatron", Rules(), seconds=30)


def test_the_coarse_graph(rnnlm) -> None:
    """Time steps and element-wise runs share labels, forward and backward ops groups; what is left out stays apart."""
    made = build_program(rnnlm, None, (2,), Rules(), each=True)
    sizes = {}
    nothing = {"grouping": False, "coalescing": False, "steps": False}
    for name, options in (("all", {}), ("no steps", {"steps": False}), ("nothing", nothing)):
        found = coarsen_labelling(rnnlm, made, **options)
        sizes[name] = (found.problem.variables, int(found.group.max()) + 1)
        labels = np.zeros(found.problem.variables, dtype=np.int64)
        assert len(found.widened(labels)) == len(found.of) == made.problem.variables
    assert sizes["all"][0] < sizes["no steps"][0] < sizes["nothing"][0] == made.problem.variables
    assert sizes["all"][1] < sizes["nothing"][1]


def test_names_of_backward_ops() -> None:
    """TensorFlow 1's and a tape's."""
    names = ("a/MatMul", "gradients/a/MatMul_grad/MatMul_1", "gradient_tape/a/MatMul/MatMul", "gradients/AddN")
    assert forward_ops(names) == {1: 0, 2: 0}


def test_nothing_within_the_time(rnnlm) -> None:
    """A method that is given no time has a valid division, or says that there is none."""
    for method in ("tofu", "joint"):
        try:
            found = divide(rnnlm, (2, 2), method, Rules(), seconds=0.01)
        except PestoError as error:
            assert "give more" in str(error) or "use another" in str(error)
        else:
            valid(rnnlm, found)
