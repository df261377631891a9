"""Training steps of the tables, and the clusters on which they are planned."""

PARDNN = ("word-rnn/8x2048", "char-crn/8x2048", "e3d/320", "pardnn-transformer/24x5120", "wrn/610x14")
"""One variant of each model of ParDNN (Qararyah et al. 2020), Table 5.1."""
CLUSTERS = ("v100x2-nvlink", "v100x2-pcie", "v100x4", "v100x8")
