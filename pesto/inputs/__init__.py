"""From what a user names to values: graphs, clusters, costs, profiles and coarse problems."""
