"""What a run saves and reads back: agent state, checkpoints, weight files, the run directory and its status."""
