"""Readers of files, one module for each kind of file; `registry` lists the kinds."""
