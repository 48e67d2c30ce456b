"""Compiled functions that all losses share, the options for compiling them, and a cache of compiled code."""
