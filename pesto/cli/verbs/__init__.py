"""One file a verb of the command line."""
