"""Stand-in for the package sglang, which needs GPUs: nothing but its name."""
