"""What-if: one training step on a grid of changed clusters (Pesto, section 5.4 and Fig 8)."""
