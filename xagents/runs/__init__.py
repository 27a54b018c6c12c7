"""The process around an agent: the run, its stages, its folder and checkpoints, evaluation."""
