"""Rows, labels and features in memory; blocks of rows, and the memory plan."""
