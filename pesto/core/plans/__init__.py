"""Plans: verified, kept in files, carried over to another cluster, written as control edges."""
