"""Settings of the public functions, each declared once together with its check."""
