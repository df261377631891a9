"""Memory rules for stages of 1F1B*, thinned or not: bytes as a function that grows with the stage's group.

A stage of layers i to j with n batches in flight, W their weights, a their activations of a batch, x what enters layer
i, y what leaves layer j (a gradient is as large as what it is of); c batches between the start of the transfer of x and
the end of the stage's backward half, n where x needs no transfer:

- PAPER: W + n a, and no less (Beaumont, Eyraud-Dubois and Shilova 2021, section 3.2).
- RECEIVED: at most W + n a + c x + 2 x + 2 y, the 2 x only where x is transferred, the 2 y where there is a stage
  behind; at least W + n (a + x).

Why at most: each x is kept until the backward half that reads it has ended. A gradient is there from the start of the
half that writes it to the end of the one that reads it. In one group those follow each other, within T. Otherwise what
comes first waits for T minus the load of the group behind, of which it is part: within 2 T, so two at a time. Why at
least: while a stage waits for its backward half, or turns to it, all n have their activations and their x.

Layers at the chain's end that take no ticks, as no layer behind them does, are done and undone at once, so of a batch
they hold nothing: at least where nothing waits in between, and in 1F1B* at most where nothing is sent behind them.

A rule by gradients of one group alone would not grow with the group, and one label a state would not do.
"""

from typing import NamedTuple

import numpy as np

from solvers.arrays import Bools, Ints, bools, ints, offsets
from solvers.pipelining.chain import Chain, MemoryModel


class StageBytes(NamedTuple):
    """Bytes of a stage of layers i to j - 1: weights, and activations, inputs and gradients in transit."""

    weights: Ints
    """[L + 1] weights of all layers before."""
    activation: Ints
    """[L + 1] activations of a batch of all layers before."""
    entering: Ints
    """[L] bytes of a batch that enter layer i."""
    sent: Ints
    """[L] ticks before layer i's forward half from which on they count: those of the transfer."""
    before: Ints
    """[L] further bytes of a stage that begins at layer i."""
    behind: Ints
    """[L + 1] further bytes of a stage that ends before layer j."""

    def held(self, i: int, j: int, in_flight: int, entered: int) -> int:
        """Bytes of layers i to j - 1 with so many batches in flight, and so many of what enters."""
        fixed = self.weights[j] - self.weights[i] + self.before[i] + self.behind[j]
        return int(fixed + in_flight * (self.activation[j] - self.activation[i]) + entered * self.entering[i])


def at_most(chain: Chain, model: MemoryModel) -> StageBytes:
    """Return a rule that no stage's bytes exceed."""
    held = _busy_from(np.append(chain.loads[:-1] + chain.transfers, chain.loads[-1]))
    entering = chain.output[:-1] * (held | (np.append(0, chain.transfers) > 0))
    found = _held(chain, held, entering * (model is MemoryModel.RECEIVED))
    if model is MemoryModel.PAPER:
        return found
    before = np.append(0, 2 * chain.output[1:-1] * (chain.transfers > 0))
    behind = np.append(2 * chain.output[:-1], 0)
    return found._replace(sent=np.append(0, chain.transfers), before=before, behind=behind)


def at_least(chain: Chain, model: MemoryModel) -> StageBytes:
    """Return a rule that no stage's bytes are below, with as many inputs as batches in flight."""
    held = _busy_from(chain.loads)
    return _held(chain, held, chain.output[:-1] * held * (model is MemoryModel.RECEIVED))


def _busy_from(ticks: Ints) -> Bools:
    """[L] whether a layer or one behind it takes any ticks."""
    return bools(np.cumsum(ticks[::-1])[::-1] > 0)


def _held(chain: Chain, held: Bools, entering: Ints) -> StageBytes:
    """With the activations of these layers alone, and without transit."""
    none = np.zeros(chain.layers + 1, dtype=np.int64)
    activation = offsets(ints(chain.activation * held))
    return StageBytes(offsets(chain.weights), activation, ints(entering), none[:-1], none[:-1], none)
