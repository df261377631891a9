"""A plan laid over a traced step: devices, chains, and the nodes that it adds."""
