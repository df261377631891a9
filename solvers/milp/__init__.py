"""The integer program: formulations as a neutral sparse form, and the solve that all vendors share."""
