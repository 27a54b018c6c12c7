"""Train PPO of Stable-Baselines3 with several agents in an environment of SuperSuit, and evaluate it."""

import time
from typing import Any

import numpy as np

from benchmarks.workers.measure import Clock, report
from benchmarks.workers.sb3_worker import arguments, make_callback, policy_arguments
from benchmarks.workers.teams import TeamJob, binned, evaluate, make_env

PACKAGES = ('stable-baselines3', 'supersuit', 'torch', 'gymnasium', 'pettingzoo', 'mpe2', 'numpy')
# number of environments of a run with different seeds
SEEDS = 1000


def make_envs(job: TeamJob) -> Any:
    """Return SuperSuit's vector, with a row for every agent of every environment.

    Its class for Stable-Baselines3 has no `seed`, which a model with a seed calls; here it is a `reset` with a seed.
    The class also does not report truncated episodes: with the option `bootstrap`, the infos report them as
    Stable-Baselines3 expects.
    """
    import supersuit
    from stable_baselines3.common.vec_env import VecMonitor
    from supersuit.vector.sb3_vector_wrapper import SB3VecEnvWrapper

    class Rows(SB3VecEnvWrapper):
        seconds = 0.0

        def seed(self, seed: int | None = None) -> list[int | None]:
            self.venv.reset(seed=None if seed is None else seed * SEEDS)
            return [seed] * self.num_envs

        def step_async(self, actions: np.ndarray) -> None:
            start = time.perf_counter()
            super().step_async(actions)
            self.seconds += time.perf_counter() - start

        def step_wait(self) -> Any:
            start = time.perf_counter()
            seen, rewards, terminated, truncated, infos = self.venv.step_wait()
            if job.options.get('bootstrap'):
                for info, cut_off in zip(infos, truncated, strict=True):
                    info['TimeLimit.truncated'] = bool(cut_off)
            self.seconds += time.perf_counter() - start
            return seen, rewards, np.logical_or(terminated, truncated), infos

    rows = supersuit.pettingzoo_env_to_vec_env_v1(make_env(job))
    num_cpus = job.options.get('num_cpus', 0)
    return VecMonitor(Rows(supersuit.concat_vec_envs_v1(rows, job.settings.n_envs, num_cpus=num_cpus)))


def make_model(job: TeamJob) -> Any:
    """Return the model; a minibatch has the rows of all agents."""
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(job.settings.threads)
    activation = {'tanh': torch.nn.Tanh, 'relu': torch.nn.ReLU}[job.settings.activation]
    policy = policy_arguments(job.settings) | {'activation_fn': activation}
    keywords = arguments(job.settings) | {'batch_size': job.settings.minibatch_size * job.agents}
    return PPO(env=make_envs(job), policy_kwargs=policy, **keywords)


def make_history() -> Any:
    """Return a callback that stores the steps and returns of all episodes."""
    from stable_baselines3.common.callbacks import BaseCallback

    class History(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.ended: list[int] = []
            self.returns: list[float] = []

        def _on_step(self) -> bool:
            for row in np.flatnonzero(self.locals['dones']):
                self.ended.append(self.num_timesteps)
                self.returns.append(self.locals['infos'][row]['episode']['r'])
            return True

    return History()


def train(job: TeamJob, model: Any, history: Any) -> dict[str, Any]:
    """Train `warmup` steps, then time `steps` more."""
    if job.warmup:
        model.learn(job.warmup, callback=history)
    rows, first, learning = model.env.venv, model.num_timesteps, make_callback()
    clock, before = Clock(), rows.seconds
    model.learn(job.steps, callback=[learning, history], reset_num_timesteps=not job.warmup)
    took = clock.read()
    parts = {'env': rows.seconds - before, 'learn': learning.learning}
    return {'steps': model.num_timesteps - first, **took, 'parts': parts}


def main() -> None:
    """Run the job."""
    job = TeamJob.from_command_line()
    model, history = make_model(job), make_history()
    result = train(job, model, history)

    def act(observations: np.ndarray, greedy: bool) -> np.ndarray:
        return model.predict(observations, deterministic=greedy)[0]

    report({**result, 'curve': binned(history.ended, history.returns, job.width), **evaluate(job, act)}, PACKAGES)
    model.env.close()


if __name__ == '__main__':
    main()
