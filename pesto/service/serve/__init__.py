"""The placement service: jobs over HTTP, kept through any crash, run by workers, told as they go."""
