"""Search for C and other settings."""
