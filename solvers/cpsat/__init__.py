"""The interval model on OR-Tools CP-SAT, whole and in windows of a schedule."""
