"""How much op times vary on the machine at hand (Pesto, Fig 4a): profiles of tiny variants with large batches."""

import numpy as np

from pesto.core.costs.measured import load_profile, spread_quantiles
from pesto.core.files.graph_file import load
from pesto.research.reproduction.cached_cells import CellSettings, Found, Key
from pesto.research.reproduction.graph_steps import file_of, model_name, run_pesto

LEVELS = tuple(k / 40 for k in range(41))
"""Shares of the ops of 10 us or more."""
ITERATIONS = 100
"""Traced steps (Pesto, 3.1)."""


def measured(key: Key, settings: CellSettings) -> Found:
    """Quantiles of the normalised standard deviation, without the slowest tenth of the samples and of all."""
    name, _, batch = model_name(key[0], settings).partition("@")
    family, variant = name.split("/")
    path = settings.drawn / f"{family}-{variant}.profile.json"
    words = ["profile", "--model", family, "--variant", variant, *(["--batch", batch] if batch else [])]
    steps = str(3 if settings.tiny else ITERATIONS)
    run_pesto([*words, "--iterations", steps, "--keep-disturbed", "-o", str(path)])
    profile = load_profile(path, load(file_of(key[0], settings)))
    trimmed, raw = (spread_quantiles(profile, LEVELS, raw=raw) for raw in (False, True))
    seen = profile.seconds[~np.isnan(profile.seconds)]
    return {
        "device": profile.device,
        "others_cores": profile.noise.others_cores if profile.noise else None,
        "ops": len(seen),
        "long_ops": int((seen >= 10e-6).sum()),
        "trimmed": None if trimmed is None else [float(value) for value in trimmed],
        "raw": None if raw is None else [float(value) for value in raw],
    }
