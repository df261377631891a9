"""How cuts are chosen: exactly, all at once, as Tofu does, and by the rules that Tofu is compared with."""
