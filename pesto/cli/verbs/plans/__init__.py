"""The verbs that take a plan."""
