"""The placement service: its server and its clients."""
