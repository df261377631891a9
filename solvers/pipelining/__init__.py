"""Pipelines of chains: layers on devices, and schedules of their batches that repeat; ticks and bytes alone."""
