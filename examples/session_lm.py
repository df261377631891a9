"""Train a TensorFlow 1 language model by a plan: one line, `with pesto.apply(...)`, around its session.

    pesto solve --function session_lm:step --cluster cpux2 --time-limit 10 -o lm.plan.json
    python session_lm.py

With two GPUs, plan for them instead: --cluster v100x2-nvlink. The script stays as it is.
"""

import numpy as np
import tensorflow as tf

import pesto

v1 = tf.compat.v1
WORDS, SIZE, STEPS, BATCH = 50, 64, 8, 16


def step() -> tuple[tf.Graph, list]:
    """The graph and what training fetches from it, which `pesto solve --function session_lm:step` plans."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(1)
        words = v1.placeholder(tf.int32, [BATCH, STEPS + 1], name="words")
        table = v1.get_variable("table", [WORDS, SIZE])
        state = tf.zeros([BATCH, SIZE])
        outputs = []
        for t in range(STEPS):
            joined = tf.concat([tf.one_hot(words[:, t], WORDS) @ table, state], 1)
            with v1.variable_scope("cell", reuse=v1.AUTO_REUSE):
                state = tf.tanh(joined @ v1.get_variable("weight", [2 * SIZE, SIZE]))
            outputs.append(state @ v1.get_variable(f"out{t}", [SIZE, WORDS]))
        logits, targets = tf.stack(outputs, 1), words[:, 1:]
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits))
        count = v1.train.get_or_create_global_step()
        train = v1.train.AdagradOptimizer(0.5).minimize(loss, global_step=count)
    return graph, [train, loss]


def main() -> None:
    """Train 40 steps by the plan."""
    graph, fetches = step()
    rng = np.random.default_rng(0)
    losses = []
    with pesto.apply("lm.plan.json") as applied:
        with graph.as_default(), v1.train.MonitoredTrainingSession() as session:
            for _ in range(40):
                words = (rng.integers(0, WORDS, (BATCH, 1)) + np.arange(STEPS + 1)) % WORDS
                losses.append(session.run(fetches, {"words:0": words})[1])
        print(f"{applied.ops} ops ran where and when planned; loss {losses[0]:.4f} -> {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
