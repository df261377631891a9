"""The cells of a study run to their end: processes or a Ray cluster, and the one writer of the file."""
