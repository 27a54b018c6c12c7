"""Files of settings: YAML, whose keys are the flags of `xagents train`."""
