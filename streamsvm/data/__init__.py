"""Rows, labels and feature names in memory, blocks of rows, and the memory plan."""
