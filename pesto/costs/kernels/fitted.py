"""Constants fitted to every second measured kernel of a V100 by `benchmarks/kernels_fit.py`; other devices scale them."""

from pesto.costs.kernels.machine import Constants, ConvConstants

MATMULS: dict[bool, Constants] = {}
CONVOLUTIONS: dict[bool, tuple[tuple[Constants, ConvConstants], ...]] = {}
