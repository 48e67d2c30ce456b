"""Tables by pyarrow: record batches, and what becomes of their columns."""
