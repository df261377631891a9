"""What a graph's ops hold in memory, and the peak bytes of each device while a step runs."""
