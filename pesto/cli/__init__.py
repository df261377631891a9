"""The command line: what all verbs share, and how each is found and loaded late."""
