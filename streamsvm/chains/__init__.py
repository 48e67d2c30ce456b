"""Chain-structured classifiers: label sequences instead of labels."""
