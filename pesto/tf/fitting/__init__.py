"""Whether a traced step is the planned one: traced with an open batch where that fits, else the one cause is named."""
