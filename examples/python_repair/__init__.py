"""Tasks about broken Python functions: repair one so that hidden tests pass."""
