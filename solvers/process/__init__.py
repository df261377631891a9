"""A solver in a process of its own: loaded late, killed in time, and judged before it is believed."""
