"""Helpers that are independent of machine learning: durable files, text, JSON, threads."""
