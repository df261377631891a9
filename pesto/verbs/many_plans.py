"""Compare and sweep: many plans of one step, by several methods or on changed clusters."""

from collections.abc import Callable

from pesto.choosing.comparison.contest import Comparison, Entrants, MethodEntry, chosen_methods, compete
from pesto.choosing.comparison.methods import METHODS
from pesto.choosing.whatif.grid import accelerators
from pesto.choosing.whatif.points import Sweep, SweepTask, sweep
from pesto.core.graph import Graph
from pesto.inputs.load import as_cluster, as_costs, load_both
from pesto.split.typed_graph import TypedGraph
from pesto.verbs.requests import CompareRequest, Context, SweepRequest, read_step


def compare_step(
    request: CompareRequest, context: Context, on_entry: Callable[[MethodEntry], None]
) -> Comparison:  # fmt: skip
    """Place a step by every method that is asked for; `on_entry` hears of each when it is done.

    Errors of reading the step, its cluster and costs. A method without a plan is an entry that says why.
    """
    machine, source = as_cluster(request.cluster), request.source
    names = chosen_methods(request.options.methods, shapes=not isinstance(source, Graph) and source.has_shapes)
    if isinstance(source, Graph) or not any(METHODS[name].cuts for name in names):
        graph, entrants = read_step(source, context), Entrants(names)
    else:
        context.begin_reading()
        graph, shapes = load_both(source, quiet=context.quiet)
        context.accept(graph)
        entrants = Entrants(names, shapes) if isinstance(shapes, TypedGraph) else Entrants(names, shapeless=shapes)
    costs = as_costs(graph, machine, request.costs)
    context.begin_search("methods")
    return compete(graph, machine, costs, request.options.settings(), on_entry, entrants=entrants)


def sweep_step(request: SweepRequest, context: Context, on_point: Callable[[Sweep], None]) -> Sweep:
    """Solve a step on every point of the grid; `on_point` hears of the rows so far.

    Errors of reading the step, its cluster and costs. A point without a plan is a row that says why.
    """
    machine = as_cluster(request.cluster)
    grid = request.options.grid(len(accelerators(machine)))
    graph = read_step(request.source, context)
    as_costs(graph, machine, request.costs)  # a profile that is refused ends it here, not in every row
    task = SweepTask(
        graph=graph, cluster=machine, costs=lambda at: as_costs(graph, at, request.costs), grid=grid,
        settings=request.options.settings(),
    )  # fmt: skip
    context.begin_search("points")
    return sweep(task, on_point)
