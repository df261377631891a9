"""TensorFlow: graphs in, plans enforced and verified; the only room that imports it."""
