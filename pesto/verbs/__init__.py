"""Use cases: the programming interface and the jobs of the service."""
