"""Stand-in for the package megatron.core, which needs GPUs: nothing but its name."""
