"""Nouns that all else speaks of: graphs, clusters, costs, problems, plans, files, and processes that do work."""
