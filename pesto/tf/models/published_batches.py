"""The largest batches that ParDNN trains on 1, 2, 4, 8 and 16 GPUs (Qararyah 2020, Table 6.1), by model and variant."""

GPUS = (1, 2, 4, 8, 16)
"""Columns of the table; where a model does not fit so few GPUs, its row has none for them."""

PUBLISHED: dict[tuple[str, str], dict[int, int]] = {
    name: dict(zip(GPUS[-len(batches) :], batches, strict=True))
    for name, batches in {
        ("word-rnn", "8x2048"): (16, 512, 1024, 2048, 2048),
        ("char-crn", "8x2048"): (8, 256, 512, 1024, 2048),
        ("wrn", "610x14"): (1, 4, 16, 32, 64),
        ("pardnn-transformer", "24x5120"): (1, 32, 64, 128, 256),
        ("e3d", "320"): (1, 4, 16, 32, 64),
        ("word-rnn", "8x4096"): (32, 1024, 2048),
        ("char-crn", "32x2048"): (128, 512, 1024),
        ("wrn", "304x28"): (4, 16, 32),
        ("pardnn-transformer", "48x8192"): (2, 16, 32),
        ("e3d", "512"): (8, 16, 32),
    }.items()
}
"""Batch by number of GPUs. WRN-3's 2, 4 and 8 are not here: the text gives its layers and its width nowhere."""
