"""Training loop, learner, sources of blocks, and memory planning."""
