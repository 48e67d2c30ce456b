"""The search for C and other settings."""
