"""How functions are compiled, and the compiled containers and graph passes that all rooms use."""
