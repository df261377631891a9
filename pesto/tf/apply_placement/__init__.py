"""Maps a plan onto a traced step: devices, chains, and the nodes that it adds."""
