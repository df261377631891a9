"""ParDNN's first step (Qararyah et al. 2020): slicing, mapping and refinement."""
