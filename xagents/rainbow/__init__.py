"""Rainbow: DQN with all of its extensions.

`agent` contains the algorithm, `cli` its options.
"""
