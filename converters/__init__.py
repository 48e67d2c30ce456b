"""Text and other files to stores."""
