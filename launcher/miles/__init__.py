"""`--engine miles`: from options to a plan, and from a plan to a Ray job."""
