"""Tables read by pyarrow: record batches, and the encoding of their columns."""
