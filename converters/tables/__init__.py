"""Read tables as record batches with pyarrow, and encode their columns as features."""
