"""Deep Q-networks."""
