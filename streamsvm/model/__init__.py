"""A trained model: coefficients, files, scores."""
