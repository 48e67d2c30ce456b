"""Trained models: their coefficients, files, scores and results."""
