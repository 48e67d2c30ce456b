"""What a block of rows is, and where blocks come from."""
