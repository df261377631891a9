"""One solve: stages that make candidates, and the one place that keeps the best, the bound and the clock."""
