"""What a step's ops are, and splits of it, on disk; and a split verified from scratch."""
