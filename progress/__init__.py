"""Whether a run advances, answered from the files it leaves on disk."""
