"""What the launchers share: options, checks, plan. Nothing here imports torch, ray or Miles at module level."""
