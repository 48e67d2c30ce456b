"""Compiled steps that all losses share, and their compilation."""
