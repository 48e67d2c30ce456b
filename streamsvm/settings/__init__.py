"""Settings of a training, each declared once with its check."""
