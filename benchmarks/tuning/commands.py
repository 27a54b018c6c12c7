"""Commands of `xagents tune`, and their studies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.venvs import XAGENTS

if TYPE_CHECKING:
    import optuna


def tune(*words: Any) -> list[str]:
    """Return the command that tunes PPO on CartPole."""
    return [*XAGENTS, 'tune', 'ppo', '--env', 'CartPole-v1', *map(str, words)]


def load_study(name: str, url: str) -> optuna.Study:
    """Open a study that a command has created."""
    import optuna

    from xagents.tuning.storages import open_storage

    return optuna.load_study(study_name=name, storage=open_storage(url, create=False))
