"""The golden cases: which commands run, and what of their results is hashed.

No case may depend on the clock, on any machine however busy. So every solve is deterministic and

- with the solver `list` also searches, by a number of steps (--time-limit is a measure of work there);
- with `cpsat`, or an integer program, gets a problem so small that it is solved to its end in about a second, and a
  limit of half an hour, of which the first tenth is still a hundred times as long; so nothing is searched after it,
  which would take as long as the limit says.

A command without --deterministic (`compare`, `sweep`) gets --time-limit 0, which leaves out all that ends by the clock.
"""

import sqlite3
from collections.abc import Iterator
from functools import partial
from typing import Any

from golden import Case, Done, Workshop, read_json

MODELS = ("rnnlm", "nmt", "transformer", "nasnet", "word-rnn", "char-crn", "wrn", "pardnn-transformer", "e3d")
CLUSTERS = {"1gpu": "v100x1.toml", "2gpu": "v100x2-nvlink", "4gpu": "v100x4"}
LONG = 1800
"""Seconds that nothing ever takes."""
ENGINES = {
    "list": ("--time-limit", 1, "--coarsen-to", 40),
    "cpsat": ("--no-search", "--time-limit", LONG, "--coarsen-to", 12),
}
FEWER = {"e3d": 8}
"""Models of which 12 nodes take CP-SAT longer than a second or two."""
FAMILIES = {
    "lstm-grid": ("layers=2", "steps=4"),
    "heterogeneous": ("layers=3", "width=3"),
    "series-parallel": ("tasks=24", "transfer=9"),
}
SMALL = ("heterogeneous", "layers=2", "width=2")
"""What every integer program solves in a second."""
PLANTED = ("planted", "tasks=30")
"""Its optimum is a bound that needs no solver, so who finds it ends."""
PROGRAMS = ("highs", "cbc", "scip")
PLACERS = (
    "single", "round-robin", "pardnn", "pardnn-unrefined", "pardnn-glb", "random", "linear-clustering", "metis",
    "pipedream", "mcmc", "heft", "cpop", "etf", "dls", "m-topo", "m-etf", "m-sct",
)  # fmt: skip
METHODS = ("framework-default", "layer-balanced", "expert", "list", "pesto", *PLACERS)
ALL_FAMILIES = (
    "chain", "fork", "lstm-grid", "transformer", "layered", "series-parallel", "independent", "planted",
    "heterogeneous", "random",
)  # fmt: skip
COLUMNS = (
    "key, stage, instance, family, solver, formulation, limit_s, seed, parameters, status, limit_reason, makespan,"
    " lower_bound, bound_by, start_makespan, detail, tasks, devices, edges"
)
"""Of a study's rows: all but versions and what is measured."""
QUICK = {
    "solve/rnnlm/2gpu/list", "solve/rnnlm/2gpu/cpsat", "schedule/heterogeneous/2gpu/list",
    "schedule/heterogeneous/2gpu/cpsat", "program/highs/tight", "compare/m-etf", "instance/random",
}  # fmt: skip
"""Cases of the default test run: their graphs are among the inputs."""


def cases() -> list[Case]:
    """All of them."""
    made = [*_graphs(), *_solves(), *_variants(), *_instances(), *_schedules(), *_comparisons(), *_others()]
    return [case._replace(quick=case.name in QUICK) for case in made]


def _graphs() -> Iterator[Case]:
    """What TensorFlow makes of each model."""
    for model in MODELS:
        yield Case(f"graph/{model}", partial(imported, model))


def _solves() -> Iterator[Case]:
    """Each model on each cluster with each engine."""
    for model in MODELS:
        for size, cluster in CLUSTERS.items():
            for engine, limits in ENGINES.items():
                fewer = ("--coarsen-to", FEWER[model]) if engine == "cpsat" and model in FEWER else ()
                words = ("--cluster", cluster, "--solver", engine, *limits, *fewer)
                yield Case(f"solve/{model}/{size}/{engine}", partial(solved, model, *words))


def _variants() -> Iterator[Case]:
    """What else a solve can be given."""
    work = ("--solver", "list", *ENGINES["list"])
    pcie = ("--cluster", "v100x2-pcie")
    yield Case("solve/pcie", partial(solved, "wrn", *pcie, *work))
    yield Case("solve/two-hosts", partial(solved, "nmt", "--cluster", "v100x4x2-25gbe", *work))
    yield Case("solve/per-edge", partial(solved, "transformer", "--per-edge", *work))
    yield Case("solve/seed", partial(solved, "rnnlm", "--seed", 7, *work))
    yield Case("solve/tight", partial(solved, "wrn", "--cluster", "tight.toml", *work))
    yield Case("solve/none-fits", partial(solved, "rnnlm", "--cluster", "tight.toml", *work))
    yield Case("solve/too-small", partial(solved, "transformer", "--cluster", "small.toml", *work))
    yield Case("solve/gap", partial(solved, "rnnlm", "--gap", 0.3, *work))
    yield Case("solve/highs", partial(solved, "rnnlm", "--solver", "highs", *ENGINES["cpsat"], "--coarsen-to", 6))
    yield Case("solve/start", partial(started, *pcie, "--time-limit", 1))


def _instances() -> Iterator[Case]:
    """Problem files of all families and of two coarse graphs."""
    for family in ALL_FAMILIES:
        yield Case(f"instance/{family}", partial(written, family, "--seed", 3))
    for model, cluster in (("rnnlm", "v100x2-nvlink"), ("transformer", "v100x4")):
        yield Case(f"instance/of-{model}", partial(coarse, model, "--cluster", cluster, "--coarsen-to", 60))


def _schedules() -> Iterator[Case]:
    """Schedules by engines, integer programs, other solvers and placement methods."""
    for family, values in FAMILIES.items():
        for gpus in (1, 2, 4):
            for engine in ENGINES:
                words = (family, *values, f"gpus={gpus}")
                yield Case(f"schedule/{family}/{gpus}gpu/{engine}", partial(scheduled, words, "--solver", engine))
    for program in PROGRAMS:
        for form in ("tight", "paper"):
            words = ("--solver", program, "--formulation", form)
            yield Case(f"program/{program}/{form}", partial(scheduled, SMALL, *words))
    for solver in ("search", "auto"):
        yield Case(f"schedule/planted/{solver}", partial(scheduled, PLANTED, "--solver", solver, "--time-limit", 100))
    yield Case("schedule/planted/cpsat-windows", windows)
    for placer in PLACERS:
        yield Case(f"placer/{placer}", partial(scheduled, ("layered",), "--solver", placer, "--time-limit", 100))


def _comparisons() -> Iterator[Case]:
    """Each method of a comparison by itself, to say which one changed."""
    for method in METHODS:
        yield Case(f"compare/{method}", partial(compared, method))


def _others() -> Iterator[Case]:
    """The other commands that plans go through."""
    yield Case("sweep", swept)
    yield Case("simulate", simulated)
    yield Case("check", checked)
    yield Case("study/schedules", partial(studied, "study.toml", COLUMNS))
    yield Case("study/plans", partial(studied, "plans.toml", COLUMNS))


def imported(model: str, shop: Workshop) -> Any:
    """The graph file that TensorFlow makes of a model, without its origin, which is newer than the hashes."""
    path = shop.fresh("imported.json")
    shop.must("import", "--model", model, "--variant", "tiny", "-o", path.name)
    graph = read_json(path)
    del graph["graph_origin"]
    return graph


def solve(shop: Workshop, *words: object, out: str = "plan.json") -> Done:
    """Run `pesto solve`; the plan is then in `out`, where there is one."""
    path = shop.fresh(out)
    return shop.pesto("solve", "--deterministic", "--json", "-q", "-o", path.name, *words)


def solved(model: str, *rest: Any) -> Any:
    """What a solve comes to; the last of `rest` is the workshop."""
    *words, shop = rest
    return _plan_of(shop, solve(shop, "--graph", shop.graph(model), *words))


def started(*rest: Any) -> Any:
    """A plan made from that of another cluster."""
    *words, shop = rest
    return _plan_of(shop, solve(shop, "--graph", shop.graph("rnnlm"), "--start", planned(shop), *words))


def planned(shop: Workshop) -> str:
    """Name of a plan file."""
    solve(shop, "--graph", shop.graph("rnnlm"), "--solver", "list", *ENGINES["list"], out="first.json")
    return "first.json"


def _plan_of(shop: Workshop, done: Done) -> Any:
    """A plan file without versions, and what its order is worth; or how the command ended."""
    plan = read_json(shop.folder / "plan.json")
    if plan is None:
        return {"exit": done.code}
    for key in ("pesto_version", "graph_origin", "cluster_origin", "costs_files"):  # newer than the hashes
        del plan["provenance"][key]
    if plan["provenance"]["coarse"] is not None:
        del plan["provenance"]["coarse"]["version"]
    return {"exit": done.code, "plan": plan, "order": done.said["order"]}


def written(family: str, *rest: Any) -> Any:
    """The problem file of a family; the last of `rest` is the workshop."""
    *words, shop = rest
    path = shop.fresh("problem.json")
    shop.must("instance", family, *words, "-o", path.name)
    return read_json(path)


def coarse(model: str, *rest: Any) -> Any:
    """The coarse problem of a model's graph."""
    *words, shop = rest
    path = shop.fresh("problem.json")
    shop.must("instance", "--graph", shop.graph(model), *words, "-o", path.name)
    return read_json(path)


def scheduled(instance: tuple[str, ...], *rest: Any) -> Any:
    """A schedule of a family's problem, and what is proven of it, without the version of the solver.

    From nothing, unless it is given a start: a list schedule is often all that there is to find.
    """
    *words, shop = rest
    family, *values = instance
    written(family, *(word for value in values for word in ("--set", value)), shop)
    path = shop.fresh("schedule.json")
    limits = ("--time-limit", LONG, "--deterministic", "--json", "-q")
    if "--start" not in words:
        limits = ("--no-start", *limits)
    done = shop.pesto("schedule", "problem.json", *limits, *words, "-o", path.name)
    made, said = read_json(path), done.said
    if said is None:
        raise RuntimeError(f"pesto schedule ended with {done.code}: {done.err[-500:]}")
    if made is not None:
        made["solver"] = made["solver"].split(" ")[0]
    return {"exit": done.code, "schedule": made, **{key: said[key] for key in ("status", "limit", "detail", "gap")}}


def windows(shop: Workshop) -> Any:
    """What windows make of a list schedule; without one, the first schedule of several threads is not repeatable."""
    scheduled(PLANTED, "--solver", "list", shop)
    (shop.folder / "schedule.json").replace(shop.folder / "start.json")
    return scheduled(PLANTED, "--solver", "cpsat-windows", "--time-limit", 100, "--start", "start.json", shop)


def compared(method: str, shop: Workshop) -> Any:
    """The row of a method and its plan; without time, as `compare` knows no other way to be the same again."""
    done = shop.pesto(
        "compare", "--graph", shop.graph("rnnlm"), "--methods", method, "--time-limit", 0, "--json", "-q", "-o", "plans"
    )
    said = done.said
    row = said["methods"][method]
    made = read_json(shop.folder / row["plan"]) if row["plan"] else None
    del row["seconds"], row["plan"]
    return {"exit": done.code, "said": said, "ops": made and made["ops"], "transfers": made and made["transfers"]}


def swept(shop: Workshop) -> Any:
    """The rows of a sweep without time, for the same reason."""
    axes = ("--compute", "0.5,1", "--links", "0.1,1", "--devices", "1,2,4")
    done = shop.pesto("sweep", "--graph", shop.graph("rnnlm"), "--time-limit", 0, *axes, "--json", "-q")
    said = done.said
    for row in said["rows"]:
        del row["seconds"]
    return {"exit": done.code, "said": said}


def simulated(shop: Workshop) -> Any:
    """A plan's prediction on another cluster, and the bytes alive over the step."""
    words = ("--graph", shop.graph("rnnlm"), "--cluster", "v100x2-pcie", "--memory", "bytes.csv", "--json")
    done = shop.must("simulate", planned(shop), *words)
    said = {key: value for key, value in done.said.items() if key != "kind"}
    return {"said": said, "bytes": (shop.folder / "bytes.csv").read_text()}


def checked(shop: Workshop) -> Any:
    """How the check of a plan and its certificate ends, of a plan as it is and of one that was tampered with.

    Without what is the file's own word, which has the version, and keys that are newer than the hashes.
    """
    words = ("--graph", shop.graph("rnnlm"), "--certificate", "--json")
    done = shop.must("check", planned(shop), *words)
    text = (shop.folder / "first.json").read_text()
    start = text.index('"start"')
    (shop.folder / "wrong.json").write_text(text[:start] + text[start:].replace("[0,", "[1,", 1))
    apart = ("not_checked", "kind", "fits", "peak_bytes")
    said = {key: value for key, value in done.said.items() if key not in apart}
    return {"said": said, "wrong": shop.pesto("check", "wrong.json", *words).code}


def studied(spec: str, columns: str, shop: Workshop) -> Any:
    """The rows of a study, by the keys of their cells, without what is measured."""
    shop.fresh("study.sqlite")
    shop.must("study", "run", spec, "--db", "study.sqlite", "--jobs", 1, "-q")
    with sqlite3.connect(shop.folder / "study.sqlite") as db:
        return db.execute(f"SELECT {columns} FROM rows ORDER BY ordinal").fetchall()  # noqa: S608 - constants
