"""Chains spread by CP-SAT, one after the other in one process: frames of npz, each after its length in eight bytes."""

import io
import sys

import numpy as np

from solvers.cpsat.chain_loads import spread


def main() -> None:
    """Until standard input ends."""
    while length := sys.stdin.buffer.read(8):
        with np.load(io.BytesIO(sys.stdin.buffer.read(int.from_bytes(length))), allow_pickle=False) as file:
            given = dict(file)
        told = io.BytesIO()
        np.savez(told, **spread(given)._asdict())
        sys.stdout.buffer.write(len(told.getvalue()).to_bytes(8) + told.getvalue())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
