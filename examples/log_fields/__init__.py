"""Tasks about log files: find lines, extract fields, count."""
