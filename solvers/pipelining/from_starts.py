"""A pattern from start times: whatever periods they lie in."""

import numpy as np

from solvers.arrays import Ints, ints
from solvers.pipelining.chain import (
    BACKWARD,
    INPUT_GRADIENT,
    SEND_BACKWARD,
    SEND_FORWARD,
    Allocation,
    Pattern,
)


def pattern_from_starts(allocation: Allocation, k: int, T: int, rows: Ints) -> Pattern:  # noqa: N803 - the paper's name
    """The pattern of k batches every T ticks whose batches 0..k - 1 have these rows.

    rows: [r, 4] kind, layer, batch and start tick of each operation, any integer. The least shift of layer 0's backward
    half becomes 0.
    """
    kind, layer, batch, start = np.asarray(rows, dtype=np.int64).reshape(-1, 4).T
    shift = batch - k * (start // T)
    last = ((kind == BACKWARD) | (kind == INPUT_GRADIENT)) & (layer == 0)
    is_send = (kind == SEND_FORWARD) | (kind == SEND_BACKWARD)
    resource = allocation.device[layer]
    resource[is_send] = allocation.link(layer[is_send])
    return Pattern(
        k=k, T=T, kind=kind, layer=layer, copy=batch, resource=ints(resource), t=start % T,
        shift=shift - shift[last].min(),
    )  # fmt: skip
