"""Completions of a shell for values of options; each imports what it needs when it is called."""

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem


def models(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Return the built-in models that begin so."""
    del ctx, param
    from pesto.tf.models import FAMILIES

    return [family.name for family in FAMILIES if family.name.startswith(begun)]


def variants(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Return the variants of the model that is named before, or of all."""
    del param
    from pesto.tf.models import FAMILIES

    named = [family for family in FAMILIES if family.name == ctx.params.get("model")]
    known = dict.fromkeys(variant for family in named or FAMILIES for variant in family.variants)
    return [variant for variant in known if variant.startswith(begun)]


def clusters(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return presets, or files."""
    del ctx, param
    from pesto.inputs.cluster_file import cluster_names

    return _or_file(cluster_names(), begun)


def studies(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return studies that come with the project, or files."""
    del ctx, param
    from pesto.research.study.spec import study_names

    return _or_file(study_names(), begun)


def solvers(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Return solvers, installed or not."""
    del ctx, param
    from solvers.api import SOLVERS

    return [name for name in SOLVERS if name.startswith(begun)]


def _or_file(names: Iterable[str], begun: str) -> list[CompletionItem]:
    """Return the names that begin so; where none does, the shell looks for a file."""
    items = [CompletionItem(name) for name in names if name.startswith(begun)]
    return items or [CompletionItem(begun, type="file")]
