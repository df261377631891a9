"""Training steps that cut their batch into micro-batches, made of models and steps that know nothing of them."""
