"""Prepare a worker for its first job: load modules, TensorFlow among them, and compiled functions."""

from pathlib import Path

from pesto.core.files import graph_file
from pesto.core.files.json import encode_json
from pesto.core.plans.plan_file import dumps
from pesto.core.settings import Settings
from pesto.core.source import Source
from pesto.inputs.load import load_cluster, load_costs
from pesto.planning.solving.background_compiler import LAST, compiled_parts, shared_compiler
from pesto.planning.solving.flow import solve
from pesto.reporting.explaining.explanation_text import explanation_object
from pesto.reporting.show.html_report import html_report, report_solve
from pesto.reporting.show.solve_report import following_command, solve_object, solve_page
from pesto.reporting.show.trace import gzip_bytes, trace
from pesto.tf.tensorflow_start import load_tensorflow
from pesto.verbs.api import explain, simulate
from pesto.verbs.jobs.checks import PRESET

_STEP = b"""{"format": "pesto-graph", "format_version": 1, "source": "ready", "ops": [
{"name": "a", "outputs": [1024], "time_s": {"gpu": 1e-5}},
{"name": "b", "inputs": ["a"], "outputs": [1024], "time_s": {"gpu": 1e-5}},
{"name": "c", "inputs": ["a", "b"], "time_s": {"gpu": 1e-5}}]}"""


def ready() -> None:
    """Solve a step of three ops, unless this machine has still to compile, and load TensorFlow; write nothing."""
    shared_compiler()  # starts what is still to be compiled: a job that waits for it can be cancelled, this could not
    if LAST in compiled_parts():
        # Solve the step and show it as a job does, which loads the compiled functions.
        graph, machine = graph_file.loads(_STEP, "ready"), load_cluster(PRESET)
        settings = Settings(solver="list", search=False, time_limit_s=0)
        outcome = solve(graph, machine, load_costs(graph, machine, None), settings, lambda _: None)
        out, stages_s = Path("ready"), outcome.stages_s
        dumps(outcome.plan)
        encode_json(solve_object(outcome, stages_s, out))
        solve_page(outcome, stages_s, out, following_command(Source(file=out), PRESET, None, out))
        html_report(graph, [report_solve(outcome, machine, out.name, stages_s)])
        gzip_bytes(trace(outcome.plan, simulate(outcome.plan, graph, cluster=machine)))
        encode_json(explanation_object(explain(outcome.plan, graph, cluster=machine)))
    load_tensorflow()
