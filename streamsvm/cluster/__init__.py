"""Training, statistics and scores on the workers of a Dask cluster."""
