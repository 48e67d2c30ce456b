"""Export of models to other programs, with one module per format."""
