"""A split as a job: what `pesto split` does."""

from math import prod
from typing import Any

from pesto.choosing.strategy_choice.timed_split import (
    accelerators_for,
    check_objective,
    refuse_short,
    rules_for,
    time_split,
)
from pesto.core.errors import UsageError
from pesto.core.settings import Settings
from pesto.inputs.load import load_cluster, load_shaped, load_shapes
from pesto.planning.solving.interrupt import hold
from pesto.reporting.show.split_page import split_object, split_page
from pesto.split.files.split_file import dumps_split
from pesto.split.program import Rules
from pesto.split.split_search import Split, divide_with_or_without_halo, parse_factors, undescribed_types
from pesto.split.undescribed_ops import refuse_undescribed
from pesto.verbs.jobs.checks import asked_settings
from pesto.verbs.jobs.result_names import SPLIT
from pesto.verbs.jobs.work import Work


def split_job(work: Work) -> dict[str, Any]:
    """Cut every tensor of a step, and time that where a cluster is named; errors as of the verb."""
    options, source, cluster = work.request.split, work.given.source, work.given.cluster
    if options is None:
        raise UsageError("how many workers? - give split")
    factors = parse_factors(options.workers)
    machine = None if cluster is None else accelerators_for(prod(factors), load_cluster(cluster), source)
    memory = None if options.memory_gib is None else int(options.memory_gib * 2**30)
    rules, seconds = Rules(replicate=options.replicate, memory_bytes=memory, halo=options.halo), _seconds(work)
    check_objective(options.objective, rules, machine)
    work.begin_reading()
    graph, shaped = (None, load_shapes(source)) if machine is None else load_shaped(source, quiet=True)
    work.accept(shaped)
    if not options.whole:
        refuse_undescribed(shaped, "accept that with whole")
    work.telling.begins("cuts")
    rules = rules_for(rules, options.objective, (graph, machine), prod(factors))

    def save(split: Split) -> None:
        """Write a split: the worker may be killed while a shorter one is looked for, or this one is timed."""
        work.keep(SPLIT, dumps_split(shaped, split, time_limit_s=seconds))

    found = divide_with_or_without_halo(shaped, factors, options.method, rules, seconds=seconds, on_split=save)
    save(found)
    clocked = (
        time_split(graph, shaped, found, machine, Settings()) if graph is not None and machine is not None else None
    )
    hold()
    left, out = undescribed_types(shaped), work.shown_out(SPLIT)
    said = split_object(shaped, found, left, out, clocked)
    work.answer(said, split_page(shaped, found, left, out, clocked))
    if clocked is not None and machine is not None and not clocked.candidate.fits:
        refuse_short(clocked, machine)
    return {"ops": shaped.ops, "bytes": found.moved_bytes, "method": found.method, "interrupted": False}


def _seconds(work: Work) -> float:
    return asked_settings(work.request).time_limit_s
