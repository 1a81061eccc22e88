"""The engine that trains a small model on one machine through the same parts as a cluster run."""
