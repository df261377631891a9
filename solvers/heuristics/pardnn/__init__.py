"""ParDNN's first step (Qararyah et al. 2020): slicing, mapping, refinement, and its emulator."""
