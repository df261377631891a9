"""The recorded op counts are those of the models."""

import pytest

from pesto.tf.models import FAMILIES, counts


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_every_variant_is_recorded_and_tiny_is_what_is_built(family) -> None:
    """A model that changes must change its record; the real sizes are held to it by benchmarks/models_table.py."""
    found = counts.recorded()[family.name]
    assert set(found) == set(family.variants)
    assert found["tiny"] == counts.measure(family.name, "tiny")
