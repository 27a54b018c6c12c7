"""TD3 with behaviour cloning."""
