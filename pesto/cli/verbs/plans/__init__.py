"""The verbs that take a plan: told, drawn, verified, run."""
