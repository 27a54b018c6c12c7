"""Named values besides observations, actions and rewards: numbers of infos that environments return, and parameters."""
