"""Training steps of the model families a plan is made for; TensorFlow is imported only when one is built.

Sources: the first four families and their variants are those of Pesto (Middleware '21, section 5.2), the next five
those of ParDNN (Qararyah 2020, Table 5.1), the last two those of Tofu (arXiv:1807.08887v1, section 6.1); `tiny` is the
same structure at a size whose step runs in a fraction of a second on one CPU core.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pesto.tf.models.step import ModelFeed, ModelStep

__all__ = ["FAMILIES", "ModelFamily", "ModelFeed", "ModelStep", "build", "find"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """One model family: the module with its `CONFIGS` and `construct(config)`, and its variants, the paper's first."""

    name: str
    module: str
    variants: tuple[str, ...]

    @property
    def default(self) -> str:
        """Name of the variant that is built unless another is named."""
        return self.variants[0]


FAMILIES: tuple[ModelFamily, ...] = tuple(
    ModelFamily(name=name, module=f"pesto.tf.models.{name.replace('-', '_')}", variants=(*variants.split(), "tiny"))
    for name, variants in (
        ("rnnlm", "2x2048 4x2048 16x1024"),
        ("nmt", "2x1024 4x1024"),
        ("transformer", "10x8x1024 12x8x1024 6x16x2048"),
        ("nasnet", "4x212 6x148 6x168"),
        ("word-rnn", "8x2048 8x4096"),
        ("char-crn", "8x2048 32x2048"),
        ("wrn", "610x14 304x28"),
        ("pardnn-transformer", "24x5120 48x8192"),
        ("e3d", "320 512"),
        ("tofu-rnn", "6x4096 6x6144 6x8192 8x4096 8x6144 8x8192 10x4096 10x6144 10x8192 4x8192"),
        ("tofu-wrn", "50x4 50x6 50x8 50x10 101x4 101x6 101x8 101x10 152x4 152x6 152x8 152x10"),
    )
)


def find(name: str, variant: str | None = None) -> tuple[ModelFamily, str]:
    """Return the family `name` and its variant (the default if None); raise ValueError for an unknown one."""
    named = {family.name: family for family in FAMILIES}
    if name not in named:
        raise ValueError(_make_unknown_error("model", name, tuple(named)))
    family = named[name]
    chosen = family.default if variant is None else variant
    if chosen not in family.variants:
        raise ValueError(_make_unknown_error(f"variant of {name}", chosen, family.variants))
    return family, chosen


def build(name: str, variant: str | None = None, batch: int | None = None) -> ModelStep:
    """Build one training step; `batch` replaces the variant's batch size. Raise ValueError for an unknown one."""
    family, chosen = find(name, variant)
    if batch is not None and batch < 1:
        raise ValueError(f"a batch holds at least one example, not {batch}")
    module = importlib.import_module(family.module)
    config = module.CONFIGS[chosen]
    step: ModelStep = module.construct(replace(config, batch=batch or config.batch))
    return step


def _make_unknown_error(kind: str, name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"no {kind} is called {name!r}; there are {', '.join(names)}{hint}"
