"""Every placement method on one training step: proposed, repaired, simulated, checked."""
