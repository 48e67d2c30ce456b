"""Command line, one file for each command, without algorithms."""
