"""The run directory: duals, commits and recovery, by which training survives being killed at any instant."""
