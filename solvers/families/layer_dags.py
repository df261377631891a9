"""Graphs of layers like networks with branches and skip connections, for their loads to be spread."""

import numpy as np

from solvers.pipelining.dags.layer_dag import LayerDag


def network_dag(rng: np.random.Generator, layers: int, *, tied: float = 0.05) -> LayerDag:
    """One to three edges into each layer, from the last eight, every twentieth from anywhere before; some layers tied.

    Loads are log-normal, about 100 ticks; a transfer is about a tenth of that. `tied`: the share of layers that share
    their device with one other, as those do that share weights.
    """
    src, dst = list[int](), list[int]()
    for layer in range(1, layers):
        many = 1 + int(rng.integers(0, 3) * (rng.random() < 0.5))
        near = layer - 1 - np.minimum(rng.geometric(0.5, many) - 1, min(7, layer - 1))
        from_ = {int(rng.integers(layer)) if rng.random() < 0.05 else int(one) for one in near}
        src += sorted(from_)
        dst += [layer] * len(from_)
    group = np.full(layers, -1)
    pairs = rng.permutation(layers)[: 2 * int(tied * layers / 2)].reshape(-1, 2)
    group[pairs] = np.arange(len(pairs))[:, None]
    return LayerDag(
        loads=np.ceil(rng.lognormal(4.4, 0.6, layers)).astype(np.int64),
        src=np.array(src, dtype=np.int64), dst=np.array(dst, dtype=np.int64),
        transfers=np.ceil(rng.lognormal(2.0, 0.8, len(src))).astype(np.int64), group=group,
    )  # fmt: skip
