"""The portfolio: heuristics and exact engines that share what they find."""
