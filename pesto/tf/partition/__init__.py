"""A divided step as TensorFlow runs it: its partitioned GraphDef, its variables in parts, and a run beside the whole."""
