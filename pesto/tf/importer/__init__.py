"""From a captured training step to the array `Graph`: kinds of devices, work and bytes of every op."""
