"""A plan made to hold on stock TensorFlow, and verified against the graphs that it executes."""
