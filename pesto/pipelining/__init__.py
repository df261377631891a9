"""Pipelines of chains: stages within a memory, the named schedules beside each other, and what is proven of them."""
