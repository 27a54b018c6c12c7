"""Rainbow: DQN with six extensions.

`agent` contains the algorithm, `cli` its options.
"""
