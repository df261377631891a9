"""What was found of a pipeline: its page, its diagram and its curve."""
