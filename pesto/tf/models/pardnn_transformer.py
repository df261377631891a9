"""The Transformer at the sizes of ParDNN (TRN, TRN-2), for IWSLT'16: every head is computed on its own."""

from __future__ import annotations

from dataclasses import replace

from pesto.tf.models.transformer import TransformerConfig, construct

__all__ = ["CONFIGS", "construct"]

# Without an output projection, as in Kyubyong Park's code for this data, whose parameters add up to ParDNN's.
_LARGE = TransformerConfig(layers=24, heads=8, hidden=2048, width=5120, length=100, vocabulary=10_000, apart=True)

CONFIGS: dict[str, TransformerConfig] = {
    "24x5120": replace(_LARGE, batch=64),
    "48x8192": replace(_LARGE, layers=48, width=8192, batch=2),
    "tiny": replace(_LARGE, layers=1, heads=2, hidden=16, width=40, batch=4, length=6, vocabulary=100, warmup=4),
}
