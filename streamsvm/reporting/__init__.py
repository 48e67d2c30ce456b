"""Report of a run as an HTML page: its content, pictures and template."""
