"""Actor-critic with experience replay."""
