"""What a finished trial is worth and how that is carried to the trainer. Standard library only."""
