"""The run directory: logs, commits and recovery, by which training survives being killed at any instant."""
