"""General-purpose helpers for files, JSON, text, labels, progress and threads."""
