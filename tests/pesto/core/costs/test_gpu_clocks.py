"""Clocks of a GPU, asked of a program that stands in for the driver's."""

import pytest

from pesto.core.costs import presets


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Make a program that prints what it is given, and is found where the driver's would be."""

    def make(body):
        program = tmp_path / "stand-in"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        monkeypatch.setattr(presets, "PROGRAM", str(program))

    return make


def test_clocks_are_read(driver, monkeypatch):
    """Of the first GPU that the process may see."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    driver('[ "$1" = --id=3 ] && [ "$2" = --query-gpu=clocks.sm,clocks.max.sm ] && echo "1380, 1530"')
    assert presets.gpu_clocks() == "SM clock 1380 of 1530 MHz after the runs"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert presets.gpu_clocks() == ""  # asked for GPU 0, the stand-in fails


@pytest.mark.parametrize("body", ["exit 9", "echo", "true", "echo '[N/A], [N/A]'", "echo 1380", "echo 1, 2, 3"])
def test_a_driver_that_does_not_say_is_no_failure(driver, body):
    """Nothing is known, so nothing is said."""
    driver(body)
    assert presets.gpu_clocks() == ""


def test_without_a_driver_nothing_is_said(monkeypatch, tmp_path):
    """As on every machine without such a GPU."""
    monkeypatch.setattr(presets, "PROGRAM", str(tmp_path / "none"))
    assert presets.gpu_clocks() == ""
