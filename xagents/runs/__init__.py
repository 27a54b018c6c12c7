"""Training runs: the run object, the stages of its recipe, and the checks before the first step."""
