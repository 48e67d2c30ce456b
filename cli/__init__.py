"""Command line, with one module for each command; the algorithms are in the library."""
