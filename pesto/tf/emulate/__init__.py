"""A planned step emulated: TensorFlow's executor runs functions that take the predicted times in place of its ops."""
