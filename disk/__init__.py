"""Files that are whole or absent, and how many may be open."""
