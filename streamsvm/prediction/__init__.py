"""Predictions for data of any size, and how good they are."""
