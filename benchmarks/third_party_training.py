"""A program of another package trained by `fit`, by a plan or without one; and its batch as a file.

    python -m benchmarks.third_party_training MODULE:NAME [--plan PLAN]
    python -m benchmarks.third_party_training MODULE:NAME --batch FILE.npz

Without a plan it is the reference `unplaced` (docs/guides/enforce.md): Grappler off, one thread an op. Prints a JSON
object: the losses of three steps and a hash of each variable of the model and its optimizer, and with a plan how many
ops moved or ran out of order.
"""

import argparse
import hashlib
import importlib
import json
from pathlib import Path
from typing import Any

from third_party_batches import BATCH

from pesto.verbs import api

STEPS = 3


def main() -> None:
    """Train, or write the batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="MODULE:NAME")
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--batch", type=Path, metavar="FILE.npz")
    asked = parser.parse_args()
    api.logical_cpus(2)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    module, _, name = asked.program.partition(":")
    model, batch = getattr(importlib.import_module(module), name)()
    print(json.dumps(write_batch(batch, asked.batch) if asked.batch else trained(model, batch, asked.plan)))


def trained(model: Any, batch: Any, plan: Path | None) -> dict[str, Any]:
    """Losses and variables after three steps, each an epoch of one batch."""
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(batch if len(batch) > 1 else batch[0]).batch(BATCH)
    result: dict[str, Any] = {}
    if plan is None:
        history = model.fit(data, epochs=STEPS, shuffle=False, verbose=0)
    else:
        with api.apply(api.load_plan(plan), devices="cpu") as applied:
            history = model.fit(data, epochs=STEPS, shuffle=False, verbose=0)
        for what in ("moves", "inversions"):
            result[what] = sum(len(getattr(finding, what)) for finding in applied.findings)
        result["steps"] = sum(finding.ops > 0 for finding in applied.findings)
    variables = [*model.variables, *model.optimizer.variables]
    hashes = [hashlib.sha256(variable.numpy().tobytes()).hexdigest() for variable in variables]
    return {**result, "losses": [float(loss).hex() for loss in history.history["loss"]], "variables": hashes}


def write_batch(batch: Any, file: Path) -> dict[str, Any]:
    """Write a batch for `pesto run --feeds`, as the train function of Keras 2 reads it from its iterator."""
    import numpy as np
    import tensorflow as tf

    arrays = tf.nest.flatten(batch)
    names = [f"IteratorGetNext:{k}" if k else "IteratorGetNext" for k in range(len(arrays))]
    np.savez(file, **dict(zip(names, arrays, strict=True)))
    return {"feeds": names}


if __name__ == "__main__":
    main()
