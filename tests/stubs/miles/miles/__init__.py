"""Stand-in for the package miles, which needs GPUs: nothing but its name."""
