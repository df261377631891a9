"""Facts that several pages share, as lines and as JSON keys: costs, contributions, enforced steps, trust."""
