"""CrossQ: SAC with batch normalisation instead of target networks."""
