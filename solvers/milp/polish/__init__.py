"""Fix and optimise: a schedule improved by many small integer programs."""
