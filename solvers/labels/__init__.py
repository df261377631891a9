"""The labelling problem: a label for each variable, costs of labels and of pairs; solved exactly or quickly."""
