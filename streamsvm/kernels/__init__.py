"""Compiled steps that every loss shares, and how they are compiled."""
