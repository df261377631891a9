"""Methods that place clusters, layers or partitions of tasks."""
