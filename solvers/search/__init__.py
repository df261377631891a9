"""Annealing over placements and one order of all tasks, then exact windows of the best."""
