"""Export of models to other programs: one file for each format."""
