"""What is remembered: transitions and rollouts in rings, priorities, and their files."""

from xagents.replay.hindsight import HindsightBuffer as HindsightBuffer
from xagents.replay.rollouts import RolloutBuffer as RolloutBuffer
from xagents.replay.transitions import ReplayBuffer as ReplayBuffer
