"""Command line: one module for each command, without algorithms, which are in the library."""
