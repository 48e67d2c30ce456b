"""Compiled functions that all losses share, and the options and cache with which they are compiled."""
