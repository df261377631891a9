"""Training steps from TensorFlow's objects and files: v1 graphs, functions, Keras models, SavedModels."""
