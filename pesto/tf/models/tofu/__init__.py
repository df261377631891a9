"""Training steps of the two families that Tofu is measured on."""
