"""Work in processes of its own, here or on a Ray cluster: begun, heard of, interrupted, limited."""
