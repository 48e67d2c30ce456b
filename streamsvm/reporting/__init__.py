"""HTML report of a run: history, page and template."""
