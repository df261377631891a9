"""Memory over time: what tasks hold, and the peak bytes of each location while a schedule runs."""
