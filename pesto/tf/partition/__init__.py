"""A divided step as TensorFlow runs it: a GraphDef of parts, variables in parts, and a run beside the whole step."""
