"""Train with ten mistakes and without, and let `xagents doctor` read the runs: `python -m benchmarks.learning.doctor`.

The set-ups and the causes to be named were written by somebody who had not read the checks of `xagents doctor`.
"""

import argparse
import functools
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import jobs, tables
from benchmarks.jobs import Job
from benchmarks.processes import Failed, launch
from benchmarks.venvs import REPOSITORY, XAGENTS
from benchmarks.workers.measure import versions

PACKAGES = ('xagents', 'tensorflow', 'keras', 'gymnasium', 'numpy')


class SetUp(NamedTuple):
    """A training.

    Args:
        command: words after `xagents train`.
        limit: mean reward of the last episodes that a working run exceeds, and a broken one does not reach.
        cause: of a broken one, in plain words.
        named: name of the finding that names the cause.
    """

    command: str
    limit: float
    cause: str = ''
    named: str = ''


FAULTY = 'benchmarks.envs.faulty'
SAC = (
    '--n-envs 4 --train-frequency 16 --net 64 64 --lr 1e-3 --buffer-initial-size 500 --reward-buffer-size 10 '
    '--max-steps 8000'
)
BROKEN = {
    'reward scale 1e6': SetUp(
        f'sac --env {FAULTY}:Cents-v0 {SAC}', -700e6,
        'rewards are too large', 'reward-scale',
    ),
    'learning rate 1': SetUp(
        'dqn --env CartPole-v1 --tuned --lr 1 --max-steps 20000', 100, 'the learning rate is too large',
        'learning-rate',
    ),
    'sparse reward': SetUp(
        f'ppo --env {FAULTY}:Goal-v0 --n-envs 16 --normalize-obs --max-steps 60000', 0.5,
        'the reward is always 0: exploration does not find the goal', 'sparse-reward',
    ),
    'unnormalised observations': SetUp(
        'a2c --env CartPole-v1 --tuned --max-steps 60000 '
        f'--wrapper {FAULTY}:Units scale=[1000,1000,57,57] offset=[5000,0,0,0]', 100,
        'observations are large and have different scales', 'observation-scale',
    ),
    'γ too small': SetUp(
        'trpo --env MountainCarContinuous-v0 --tuned --gamma 0.5 --max-steps 30000', 50,
        'γ is too small for the length of the episodes', 'discount',
    ),
    'entropy collapse': SetUp(
        'a2c --env LunarLander-v3 --n-envs 8 --lr 0.02 --entropy-coef 0 --max-steps 60000', -50,
        'the policy became deterministic early: the entropy is nearly 0', 'entropy',
    ),
    'entropy bonus too large': SetUp(
        'ppo --env CartPole-v1 --tuned --entropy-coef 10 --max-steps 50000', 100,
        'the policy stays random: the entropy bonus is too large', 'entropy',
    ),
    'ε decays after the run': SetUp(
        'dqn --env LunarLander-v3 --n-envs 4 --train-frequency 4 --max-steps 20000', -100,
        'most actions are random until the end: ε decays too slowly', 'exploration',
    ),
    'policy steps too large': SetUp(
        'ppo --env BipedalWalker-v3 --n-envs 8 --n-steps 256 --ppo-epochs 30 --clip-norm 5 --normalize-obs '
        '--normalize-reward --max-steps 60000', -50,
        'a rollout changes the policy too much: too many epochs, or clip range too wide',
        'policy-change',
    ),
    'learning never starts': SetUp(
        'td3 --env Pendulum-v1 --tuned --max-steps 8000', -600,
        'there are no updates: the replay buffer is never full enough', 'idle-buffer',
    ),
}  # fmt: skip
HEALTHY = {
    'PPO, CartPole': SetUp('ppo --env CartPole-v1 --tuned --max-steps 50000', 100),
    'PPO, Acrobot': SetUp('ppo --env Acrobot-v1 --tuned --max-steps 60000', -200),
    'PPO, MountainCarContinuous': SetUp('ppo --env MountainCarContinuous-v0 --tuned', 50),
    'PPO, Pendulum': SetUp('ppo --env Pendulum-v1 --tuned --max-steps 80000', -700),
    'A2C, CartPole': SetUp('a2c --env CartPole-v1 --tuned --max-steps 100000', 100),
    'DQN, CartPole': SetUp('dqn --env CartPole-v1 --tuned', 100),
    'TRPO, CartPole': SetUp('trpo --env CartPole-v1 --tuned --max-steps 40000', 100),
    'TRPO, LunarLander': SetUp('trpo --env LunarLander-v3 --tuned --max-steps 100000', -50),
    'SAC, Pendulum': SetUp(f'sac --env Pendulum-v1 {SAC}', -700),
    'TD3, Pendulum': SetUp(f'td3 --env Pendulum-v1 {SAC}', -700),
    # added after the first measurement: a reward of 100 once in an episode
    'PPO, LunarLander': SetUp('ppo --env LunarLander-v3 --tuned --max-steps 150000', -100),
    'SAC, MountainCarContinuous': SetUp('sac --env MountainCarContinuous-v0 --tuned --max-steps 20000', 50),
}
SETUPS = {**BROKEN, **HEALTHY}
NOTE = (
    'One number or word for each seed. Mean reward: of the last episodes of training; a working run exceeds the limit. '
    'Findings: their names in the order of the output, the one that names the cause in bold.'
)


def measure(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train, and return the mean reward and what the doctor finds.

    Raises:
        Failed: if there is no run, or the doctor fails.
    """
    with tempfile.TemporaryDirectory(prefix='benchmark-', ignore_cleanup_errors=True) as temporary:
        run = (options.folder or Path(temporary)).absolute() / f'{name} {seed}'.replace(' ', '-')
        words = ['train', *SETUPS[name].command.split(), '--seed', str(seed), '--run-dir', str(run), '--quiet']
        if run.exists():  # the doctor would read the old run
            raise Failed(f'--folder: {run} exists already')
        start, stopped = time.perf_counter(), ''
        try:
            launch([*XAGENTS, *words, *(['--max-steps', '2000'] if options.quick else [])], options.timeout)
        except Failed as error:  # a broken run may stop with an error, and is read then, too
            stopped = str(error)
        seconds = time.perf_counter() - start
        found = json.loads(launch([*XAGENTS, 'doctor', '--run-dir', str(run), '--json'], options.timeout)[0])
        mean = json.loads((run / 'status.json').read_text())['mean_reward']
    return {'mean': mean, 'seconds': seconds, 'stopped': stopped, 'findings': found['findings']}


def find_jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Yield a job for each seed and set-up."""
    for seed in options.seeds:
        for name in options.only or SETUPS:
            about = {'name': name, 'command': SETUPS[name].command, 'seed': seed}
            yield Job(f'{name}, seed {seed}', functools.partial(measure, name, seed, options), about)


def parse_key(about: dict[str, Any]) -> str:
    """Return what a result depends on."""
    return jobs.parse_key([about['name'], about['command'], about['seed']])


def row_of(job: Job, result: dict[str, Any], machine: dict[str, str]) -> dict[str, Any]:
    """Return what is kept of a result."""
    return {**job.about, **result, 'machine': machine, 'versions': versions(*PACKAGES)}


def shown(result: dict[str, Any]) -> str:
    """Return a result for the console."""
    return f'mean reward {result["mean"]}, {[finding["name"] for finding in result["findings"]]} {result["stopped"]}'


def is_right(row: dict[str, Any]) -> bool:
    """Return whether the doctor names the cause of a broken run, or is silent about a healthy one."""
    names = [finding['name'] for finding in row['findings']]
    return SETUPS[row['name']].named in names if row['name'] in BROKEN else not names


def render(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table of the broken set-ups, one of the healthy ones, and machines."""
    runs = {
        name: [
            r for r in sorted(rows, key=lambda row: row['seed']) if (r['name'], r['command']) == (name, setup.command)
        ]
        for name, setup in SETUPS.items()
    }
    measured = [row for own in runs.values() for row in own]
    if not measured:
        return jobs.EMPTY
    texts = []
    for part, heading in ((BROKEN, ['broken', 'cause', 'named']), (HEALTHY, ['healthy', 'silent'])):
        cells = []
        for name in part:
            means = ', '.join('none' if row['mean'] is None else f'{row["mean"]:.4g}' for row in runs[name])
            verdicts = ', '.join('yes' if is_right(row) else 'no' for row in runs[name])
            about = [name, *([part[name].cause] if part is BROKEN else []), verdicts]
            cells.append([*about, findings_of(runs[name]), means, f'{part[name].limit:g}', f'`{part[name].command}`'])
        right = [is_right(row) for name in part for row in runs[name]]
        below = f'{heading[-1].capitalize()}: {sum(right)} of {len(right)} runs.'
        texts.append(tables.markdown([*heading, 'findings', 'mean reward', 'limit', '`xagents train`'], cells, below))
    machines = dict.fromkeys(f'{tables.machine_type(r["machine"])}; {tables.versions(r["versions"])}' for r in measured)
    made = f'{measured[-1]["machine"]["date"]}, {"; ".join(machines)}. Made by `make bench-doctor`.'
    return '\n\n'.join([*texts, NOTE, made])


def findings_of(rows: Sequence[dict[str, Any]]) -> str:
    """Return the names of the findings, the one that names the cause in bold; once if they are equal for all seeds."""
    names = [[finding['name'] for finding in row['findings']] for row in rows]
    bold = {SETUPS[row['name']].named for row in rows}
    texts = [', '.join(f'**{name}**' if name in bold else name for name in own) or 'none' for own in names]
    return '; '.join(dict.fromkeys(texts))


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    page = REPOSITORY / 'docs' / 'doctor.md'
    parser = jobs.make_parser('learning.doctor', __doc__, page, 'doctor.jsonl')
    jobs.add_names(parser, '--only', SETUPS)
    parser.add_argument('--seeds', nargs='+', type=jobs.seed, default=[1, 2], help='seeds of the trainings')
    parser.add_argument('--folder', type=Path, help='keep the run directories in this folder')
    parser.add_argument('--timeout', type=float, default=600, help='largest number of seconds of a training')
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what has no kept result, write the page. Return 1 if a run fails; exit with 2 on wrong input."""
    options = make_parser().parse_args(arguments)
    options.seeds = options.seeds[: 1 if options.quick else None]
    return jobs.run_rows(options, functools.partial(find_jobs, options), parse_key, row_of, shown, render)


if __name__ == '__main__':
    sys.exit(main())
