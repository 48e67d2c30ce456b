"""Transforms of rows, applied in training and by the model in prediction: one file each."""
