"""Chain-structured classifiers, which predict label sequences."""
