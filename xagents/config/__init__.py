"""A run as a YAML file, whose keys are the flags of `xagents train`."""
