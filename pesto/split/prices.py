"""Prices of ops and messages of a step in bytes, for splits that minimise seconds instead of bytes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices:
    """Seconds of ops and messages on a cluster, as the bytes that links send meanwhile.

    K workers have K (K - 1) links between them, which all send at once: a second of an accelerator is worth as many
    bytes as K - 1 of them send in it.
    """

    unit_s: float
    """Seconds that a byte takes of the mean link."""
    message: int
    """Bytes that its latency would let through: what each block that is sent costs."""
    kernel: int
    """Bytes sent while a kernel starts, which a part takes as long for as the whole op."""
    ops: tuple[int, ...]
    """[n] bytes sent while one worker does all of each op."""
    feed: float = 0.0
    """Bytes sent while the host feeds each worker one."""
    cut_out: float = 0.0
    """Bytes sent while the host copies one of a block that is not consecutive rows of what is fed."""

    def of_part(self, op: int, parts: int) -> int:
        """Price of one part of an op that is cut in so many equal parts."""
        whole = self.ops[op]
        start = min(whole, self.kernel)
        return start + (whole - start) // parts
