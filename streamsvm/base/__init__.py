"""Helpers that know nothing of machine learning: durable files, text, JSON, threads."""
