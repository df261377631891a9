"""Training steps from TensorFlow's objects and files: v1 graphs, functions, Keras models, SavedModels, GraphDefs."""

from pesto.tf.sources.sources import from_function as from_function
from pesto.tf.sources.sources import from_graph_def_file as from_graph_def_file
from pesto.tf.sources.sources import from_keras as from_keras
from pesto.tf.sources.sources import from_saved_model as from_saved_model
from pesto.tf.sources.sources import from_v1 as from_v1
