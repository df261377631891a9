"""Random footprints for tests: names passed on, in-place writes, buffers that nobody reads."""

import numpy as np

from solvers.footprint import Footprint
from solvers.problem import Problem


def footprint_for(rng, p: Problem) -> Footprint:
    """Random buffers: one a payload and a few that nobody reads; names passed on and reuse wherever there is a read."""
    extra = rng.integers(0, p.tasks, 3) if p.tasks else np.zeros(0, dtype=np.int64)
    maker = np.concatenate([p.producer, extra])
    read = np.flatnonzero(p.payload >= 0)
    # A payload brings one buffer: buffer k is what payload k carries.
    read = read[rng.random(len(read)) < 0.9]
    by = p.dst[read]
    passes, reuses = np.full(len(maker), -1), np.full(len(maker), -1)
    size = rng.choice([0, 3, 3, 3, 5], len(maker))
    for b in range(len(maker)):
        mine = np.flatnonzero(by == maker[b])
        if len(mine) and rng.random() < 0.4:
            passes[b] = rng.choice(mine)
        if len(mine) and rng.random() < 0.6:
            reuses[b] = rng.choice(mine)
    return Footprint(
        static=rng.integers(0, 5, p.tasks),
        size=size,
        maker=maker,
        passes=passes,
        read_buffer=p.payload[read],
        read_by=by,
        read_payload=p.payload[read],
        scratch=rng.integers(0, 4, p.tasks) * (rng.random() < 0.5),
        reuses=reuses if rng.random() < 0.7 else np.zeros(0, dtype=np.int64),
    )
