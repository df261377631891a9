"""Catalogue of models, clusters and solvers as objects, for verbs and for the service."""

from typing import Any

from pesto.inputs.cluster_file import cluster_names, load_cluster
from pesto.tf.models.published_batches import PUBLISHED

_OF_A_DEVICE = ("name", "kind", "preset", "memory_bytes", "cores")


def models_object(measured: bool = False) -> dict[str, Any]:
    """The built-in models, their variants and the ops of one step; `measured`: built and counted afresh (minutes)."""
    from pesto.tf.models import FAMILIES, counts

    result = counts.measure_all() if measured else counts.recorded()
    rows = [(f.name, v, v == f.default, result[f.name][v]) for f in FAMILIES for v in f.variants]
    return {
        "models": [
            {"model": m, "variant": v, "default": d, "ops": n, "batch_by_gpus": PUBLISHED.get((m, v))}
            for m, v, d, n in rows
        ]
    }


def clusters_object() -> dict[str, Any]:
    """The cluster presets with their devices and links."""
    return {
        "clusters": [
            {
                "name": c.name,
                "devices": [{key: getattr(d, key) for key in _OF_A_DEVICE} for d in c.devices],
                "links": list(c.links),
            }
            for c in map(load_cluster, cluster_names())
        ]
    }


def solvers_object() -> dict[str, Any]:
    """The solvers, whether they are installed, and the integer programs that they can be given."""
    from solvers import available
    from solvers.api import SOLVERS

    return {
        "solvers": [
            {
                "name": row.name,
                "version": row.version,
                "why_not": row.why_not,
                "formulations": list(SOLVERS[row.name].formulations),
            }
            for row in available()
        ]
    }
