"""The report of a run: what its page says, the pictures in it, and its template."""
