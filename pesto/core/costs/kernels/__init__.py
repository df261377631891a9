"""How long single GPU kernels take: matmuls by tiles and waves, convolutions as the matmuls that they are."""
