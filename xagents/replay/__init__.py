"""Replay buffers of transitions and of rollouts, with priorities, and their files on disk."""

from xagents.replay.hindsight import HindsightBuffer as HindsightBuffer
from xagents.replay.rollouts import RolloutBuffer as RolloutBuffer
from xagents.replay.transitions import ReplayBuffer as ReplayBuffer
