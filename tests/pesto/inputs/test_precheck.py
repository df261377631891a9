"""What is wrong at first sight is said before TensorFlow is loaded."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pesto.cli.main import pesto
from pesto.tf import tensorflow_start

# A GraphDef (field 1: a node; its field 1: the name) of two ops; and ONNX, whose field 1 is a number.
GRAPH_DEF = b"\x0a\x07\x0a\x05train" + b"\x0a\x06\x0a\x04loss"
ONNX = b"\x08\x07\x12\x07pytorch"
PLAN = {"tick_s": 1e-9}

WRONG = {
    "a model": (("solve", "--model", "ntm"), 2, "nmt"),
    "a variant": (("solve", "--model", "nmt", "--variant", "2x1025"), 2, "2x1024"),
    "a folder for the plan": (("solve", "--model", "nmt", "-o", "no/plan.json"), 8, "no/plan.json"),
    "a picture's folder": (("compare", "--model", "nmt", "--chart", "no/x.png"), 8, "no/x.png"),
    "a folder of plans that is a file": (("compare", "--model", "nmt", "-o", "graph.pb"), 8, "graph.pb"),
    "a fetch": (("solve", "--graph", "graph.pb", "--fetch", "trian"), 3, "did you mean 'train'?"),
    "a fetch to optimize": (("optimize", "--graph", "graph.pb", "--fetch", "x", "-o", "y.pb"), 3, "no op is named 'x'"),
    "another format": (("solve", "--graph", "onnx.pb"), 3, "not a GraphDef"),
    "a graph cut short": (("profile", "--graph", "short.pb"), 3, "cut short"),
    "a graph to import": (("import", "--graph", "onnx.pb", "-o", "x.json"), 3, "not a GraphDef"),
    "a text that is none": (("solve", "--graph", "json.pbtxt"), 3, "not a GraphDef in text"),
    "no SavedModel": (("solve", "--saved-model", "."), 8, "no saved_model.pb"),
    "no colon": (("solve", "--function", "step"), 2, "module:callable"),
    "a file for a module": (("solve", "--function", "model.py:net"), 2, "give model:net, for example pesto inspect"),
    "a path of one": (("inspect", "./model:net"), 2, "pesto inspect model:net"),
    "one in a folder": (("inspect", "src/nets/model.py:net"), 2, "pesto inspect src.nets.model:net"),
    "one elsewhere": (
        ("inspect", "../my-nets/model.py:net"),
        2,
        "PYTHONPATH=../my-nets pesto inspect model",
    ),
    "two steps": (("inspect", "model:net", "--function", "model:other"), 2, "are two steps - name one"),
    "two graphs": (("inspect", "model:net", "--model", "nmt"), 2, "several graphs"),
    "a signature of a model": (("solve", "--model", "nmt", "--signature", "train"), 2, "goes with a SavedModel"),
    "no profile": (("solve", "--model", "nmt", "--costs", "nowhere.json"), 8, "nowhere.json"),
    "two profiles": (("solve", "--model", "nmt", "--costs", "graph.pb", "--costs", "onnx.pb"), 2, "--costs is given 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_it_is_said_without_tensorflow(name, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error and its code, though TensorFlow cannot be loaded."""
    monkeypatch.chdir(tmp_path)
    for file, data in {"graph.pb": GRAPH_DEF, "onnx.pb": ONNX, "short.pb": GRAPH_DEF[:-1]}.items():
        Path(file).write_bytes(data)
    Path("json.pbtxt").write_text(json.dumps(PLAN))
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    monkeypatch.setattr(tensorflow_start, "load_tensorflow", lambda: pytest.fail("TensorFlow is loaded"))
    words, code, says = WRONG[name]
    error = CliRunner().invoke(pesto, [*words], standalone_mode=False).exception
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    assert getattr(error, "exit_code", None) == code and says in text, repr(error)
    assert not Path("no").exists()
