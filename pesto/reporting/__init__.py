"""Explanations, pages and reports of plans, splits and patterns."""
