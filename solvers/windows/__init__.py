"""Windows of a plan as small problems for any exact engine; links stay first come, first served."""
