"""Readers for the kinds of files that can be converted; `registry` maps each kind to its reader."""
