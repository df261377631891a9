"""Compilation ahead of a machine's first solve, in processes of their own."""
