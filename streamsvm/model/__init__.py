"""Trained models: coefficients, model folders and scores."""
