"""What holds nothing is named together."""

from pesto.reporting.show.facts import name_ranges


def test_devices_that_count_on_are_one():
    """Each run of numbers of a kind."""
    assert name_ranges(["gpu:4", "gpu:5", "gpu:6", "gpu:7"]) == ["gpu:4 to 7"]
    assert name_ranges(["gpu:1", "gpu:3", "tpu:4"]) == ["gpu:1", "gpu:3", "tpu:4"]
    assert name_ranges(["gpu:10", "gpu:11", "gpu:8", "gpu:9"]) == ["gpu:8 to 11"]
    assert name_ranges([]) == []
