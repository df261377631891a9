"""What pages say of one thing, as lines and as keys of JSON: costs, contributions, enforced steps, trust."""
