"""What a shell offers for the value of an option; each imports what it needs when it is asked."""

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem


def models(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Built-in models."""
    del ctx, param
    from pesto.tf.models import FAMILIES

    return [family.name for family in FAMILIES if family.name.startswith(begun)]


def variants(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Variants of the model that is named before, or of all."""
    del param
    from pesto.tf.models import FAMILIES

    named = [family for family in FAMILIES if family.name == ctx.params.get("model")]
    found = dict.fromkeys(variant for family in named or FAMILIES for variant in family.variants)
    return [variant for variant in found if variant.startswith(begun)]


def clusters(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Presets, or files."""
    del ctx, param
    from pesto.inputs.cluster_file import cluster_names

    return _or_file(cluster_names(), begun)


def studies(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Studies that come with the project, or files."""
    del ctx, param
    from pesto.research.study.spec import study_names

    return _or_file(study_names(), begun)


def solvers(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Solvers, installed or not."""
    del ctx, param
    from solvers.api import SOLVERS

    return [name for name in SOLVERS if name.startswith(begun)]


def _or_file(names: Iterable[str], begun: str) -> list[CompletionItem]:
    """The names that begin so; where none does, the shell looks for a file."""
    found = [CompletionItem(name) for name in names if name.startswith(begun)]
    return found or [CompletionItem(begun, type="file")]
