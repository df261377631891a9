"""TensorFlow's graph optimizer, once and before planning, without rewrites that change a result."""
