"""Cluster files that tests write: how they begin, and what becomes of a text."""

from pesto.core.cluster import Cluster
from pesto.inputs import cluster_file

HOST = """\
format_version = 1
[[hosts]]
cpu = "xeon-core"
cores = 4
memory_gib = 8
"""
"""The first lines: one CPU of 4 cores with 8 GiB."""


def parse(text: str) -> Cluster:
    """The cluster of a file `my.toml` with this text."""
    return cluster_file.parse(text.encode(), "my.toml", "my.toml")
