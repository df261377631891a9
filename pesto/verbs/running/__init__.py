"""Programs of TensorFlow that run by plans, from Python: what of the face needs TensorFlow."""
