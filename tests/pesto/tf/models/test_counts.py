"""The recorded op counts are those of the models."""

import pytest

from pesto.tf.models import FAMILIES, counts

SOME = [pytest.param(f, marks=() if f.name in ("rnnlm", "transformer") else pytest.mark.matrix) for f in FAMILIES]


@pytest.mark.parametrize("family", SOME, ids=lambda f: f.name)
def test_every_variant_is_recorded_and_tiny_is_what_is_built(family) -> None:
    """A model that changes must change its record; the real sizes are held to it by benchmarks/models_table.py."""
    found = counts.recorded()[family.name]
    assert set(found) == set(family.variants)
    assert found["tiny"] == counts.measure(family.name, "tiny")
