"""Choose the policies of the package among kept runs: `python -m benchmarks.learning.pretrained --runs DIR`.

Among the runs of an agent in an environment, the run with the best last weights is chosen. Its score comes from other
episodes than the choice, which are played with the files of the package.
"""

import argparse
import contextlib
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from xagents.checkpoints.state_files import find_checkpoint
from xagents.checkpoints.status import read_status
from xagents.cli.commands import find_command
from xagents.cli.dispatch import parse
from xagents.collecting.policy_files import POLICY_ARRAYS, POLICY_PLAN
from xagents.config.configuration import read_config
from xagents.evaluation.playing import DEFAULT_N_ENVS
from xagents.factory import players
from xagents.factory.defaults import add_suggested_options
from xagents.factory.presets import find_preset
from xagents.factory.pretrained import FOLDER, read_pretrained
from xagents.options.declaration import declared_options, to_flags
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError
from xagents.registry.agents import find_agent
from xagents.reports.search import find_runs
from xagents.system.file_names import CONFIG, STATE_FILE
from xagents.teams.cli import parse_policy, policy_text

# agents and environments of the package, and the required mean return: the one at which the environment counts as
# solved, or one that looks well; networks are small
SHIPPED = {
    ('ppo', 'CartPole-v1'): 475, ('ppo', 'Acrobot-v1'): -100, ('ppo', 'MountainCar-v0'): -110,
    ('ppo', 'Pendulum-v1'): -200, ('tqc', 'Pendulum-v1'): -160, ('trpo', 'MountainCarContinuous-v0'): 90,
    ('sac', 'MountainCarContinuous-v0'): 90, ('ppo', 'LunarLander-v3'): 200, ('dqn', 'LunarLander-v3'): 200,
    ('acer', 'LunarLander-v3'): 200, ('ppo', 'LunarLanderContinuous-v3'): 200,
    ('trpo', 'LunarLanderContinuous-v3'): 200, ('a2c', 'BipedalWalker-v3'): 250, ('ppo', 'BipedalWalker-v3'): 250,
    ('ppo', 'HalfCheetah-v5'): 2500, ('trpo', 'Hopper-v5'): 2500, ('ppo', 'Walker2d-v5'): 2500,
}  # fmt: skip
# the default camera does not follow the robot; nothing else depends on the camera
CAMERAS = {env: {'camera_name': 'track'} for env in ('HalfCheetah-v5', 'Hopper-v5', 'Walker2d-v5', 'Ant-v5')}
EPISODES = 100
# number of episodes that a test repeats: one in each environment of the evaluation
FIRST = DEFAULT_N_ENVS
LARGEST = 300_000  # bytes of a policy
# seeds of the score and of the choice among runs
SCORED, CHOSEN = 0, 1
# after the agent's id in the key of a run with a recurrent network
WITH_MEMORY = ' with memory'
# options that do not change the result of a training
PROCESS = ('run_dir', 'quiet', 'threads', 'final_episodes', 'save_seconds', 'checkpoint_frequency', 'keep')
Results = dict[str, float]


def runs_of(folders: Sequence[Path]) -> dict[tuple[str, str], list[Path]]:
    """Return the finished runs in folders and their subfolders, by agent, with or without memory, and environment."""
    found: dict[tuple[str, str], list[Path]] = {}
    for run in (run for one in find_runs(folders) for run in one.runs):
        config = read_config(run)
        with contextlib.suppress(ValueError):  # a run that has just started
            if config.get('env') and read_status(run)['state'] == 'finished':
                learner = config['agent'] + (WITH_MEMORY if config.get('memory') else '')
                found.setdefault((learner, config['env']), []).append(run)
    return found


def policy_of(run: Path, seed: int) -> players.PolicyPlayer | None:
    """Return the policy of the last weights of a run; None if the package alone cannot play it.

    That is so if the policy needs its agent, or the environment a wrapper, which is code of somebody else.
    """
    return None if read_config(run).get('wrapper') else players.load_player(run, 'last', {'seed': seed})


def best_of(
    runs: Iterable[Path], episodes: int = EPISODES, load: Callable[[Path, int], Any] = policy_of
) -> Path | None:
    """Return the run with the best last weights; None if no run can be played.

    Args:
        runs: the runs.
        episodes: number of greedy episodes of each run.
        load: returns a player for a run and a seed, or None.
    """
    means: dict[Path, float] = {}
    for run in runs:
        player = load(run, CHOSEN)
        if player is not None:
            means[run] = played(player, episodes)['mean']
            print(f'  {run}: {means[run]:.1f}', file=sys.stderr, flush=True)
    return max(means, key=means.__getitem__) if means else None


def played(player: players.PolicyPlayer, episodes: int) -> Results:
    """Return the scores of greedy episodes, rounded to three decimals."""
    with contextlib.closing(player):
        return {name: round(value, 3) for name, value in player.evaluate(episodes=episodes).items()}


def command_of(agent_id: str, options: Mapping[str, Any]) -> str:
    """Return the shortest command that repeats a training: the preset with what differs, or without the preset."""
    entry, options = find_agent(agent_id), {n: v for n, v in options.items() if n not in PROCESS}
    if options.get('schedule_steps') == options.get('max_steps'):
        options.pop('schedule_steps', None)
    defaults = {name: one.default for name, one in entry.options_in().items()}
    commands = [command(agent_id, _changed(options, defaults))]
    with contextlib.suppress(OptionError):
        preset = find_preset(agent_id, options['env'])
        tuned = {**preset.options, 'max_steps': preset.max_steps}
        others = {n: v for n, v in _changed(options, defaults | tuned).items() if v is not None}
        # a given option also removes options of the preset
        repeated = {'max_steps': preset.max_steps, **add_suggested_options(entry, others, preset.options)[0]}
        if _changed(repeated, defaults) == _changed(options, defaults):
            commands.append(f'{command(agent_id, others)} --tuned')
    return min(commands, key=len)


def _changed(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value != defaults[name]}


def command(agent_id: str, options: Mapping[str, Any]) -> str:
    """Return the command of a training."""
    if policies := options.get('policies'):
        options = {
            **options,
            'policies': {name: policy_text(parse_policy(name, one)) for name, one in policies.items()},
        }
    return shlex.join(['xagents', 'train', agent_id, *to_flags(options)])


def networks_of(agent_id: str, options: Mapping[str, Any], about: Mapping[str, Any], plan: Path) -> dict[str, Any]:
    """Return the options of a run's networks. If a resumed run lacks them, use its first command, or the preset."""
    names = (*declared_options(NetworkOptions), *find_agent(agent_id).models)
    found = {name: options[name] for name in names if options.get(name)}
    words = shlex.split(about['command'])[2:]
    if not found and words[:1] == [agent_id]:
        typed = parse(find_command('train'), agent_id, words[1:])[1]
        found = {name: typed[name] for name in names if name in typed}
    if not found:
        with contextlib.suppress(OptionError):
            tuned = find_preset(agent_id, options['env']).options
            calls = json.loads(plan.read_text())['network']['calls']
            widths = [call['kernel'][-1] for call in calls if call['kind'] == 'dense'][:-1]
            found = {name: tuned[name] for name in names if name in tuned} if tuned.get('net') == widths else {}
    return found


def record_of(run: Path, checkpoint: Path) -> dict[str, Any]:
    """Return the record of a policy: what playing needs from the checkpoint, and the origin of the policy."""
    config = read_config(run)
    agent_id, about = config.pop('agent'), yaml.safe_load((run / CONFIG).read_text())['about']
    config |= networks_of(agent_id, config, about, checkpoint / POLICY_PLAN)
    # the player chooses the number of environments and their processes
    defaults = {n: o.default for n, o in declared_options(EnvironmentOptions).items() if n not in ('n_envs', 'vector')}
    options = {n: config[n] for n, default in defaults.items() if config.get(n, default) != default}
    if config['env'] in CAMERAS:
        options['env_kwargs'] = {**CAMERAS[config['env']], **options.get('env_kwargs', {})}
    counters = {'steps': json.loads((checkpoint / STATE_FILE).read_text())['counters']['steps']}
    trained = {'seed': config['seed'], 'command': command_of(agent_id, config)}
    trained |= {'date': about['started'][:10], 'versions': about['versions']}
    return {'agent': agent_id, 'options': options, 'counters': counters, 'trained': trained}


def write(run: Path, folder: Path, episodes: int = EPISODES) -> None:
    """Write the policy of the last weights of a run into a new folder, with its score."""
    checkpoint = find_checkpoint(run, 'last')
    assert checkpoint is not None
    folder.mkdir(parents=True)
    for name in (POLICY_PLAN, POLICY_ARRAYS):
        shutil.copyfile(checkpoint / name, folder / name)
    record = record_of(run, checkpoint)
    _write_record(folder, record)
    for name, count in {'score': episodes, 'first': min(FIRST, episodes)}.items():
        player = players.load_player_from_checkpoint(find_agent(record['agent']), folder, {'seed': SCORED})
        assert player is not None
        record[name] = {**played(player, count), 'episodes': count, 'seed': SCORED}
    _write_record(folder, record)


def _write_record(folder: Path, record: Mapping[str, Any]) -> None:
    (folder / STATE_FILE).write_text(json.dumps(record, indent=1, allow_nan=False) + '\n')


def ship(run: Path, out: Path, required: float, episodes: int = EPISODES) -> str:
    """Replace the policy in `out` by that of a run if it is better; return the result for the console."""
    with tempfile.TemporaryDirectory() as temporary:
        new = Path(temporary) / out.name
        write(run, new, episodes)
        mean, size = read_pretrained(new).score['mean'], sum(file.stat().st_size for file in new.iterdir())
        if size > LARGEST:
            return f'{size / 1000:.0f} kB, more than {LARGEST / 1000:.0f}: not shipped'
        if mean < required:
            return f'{mean:.1f}, below {required}: not shipped'
        if out.is_dir() and mean <= (shipped := read_pretrained(out).score['mean']):
            return f'{mean:.1f}, not better than the shipped {shipped:.1f}'
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(new, out)
    return f'{mean:.1f}, {size / 1000:.0f} kB'


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.learning.pretrained', description=__doc__, allow_abbrev=False
    )
    parser.add_argument('--runs', nargs='+', type=Path, required=True, metavar='DIR', help='runs, or folders of runs')
    parser.add_argument('--only', nargs='+', metavar='AGENT', help='only policies of these agents')
    parser.add_argument('--out', type=Path, default=FOLDER, help='folder of the policies (in the package)')
    parser.add_argument('--episodes', type=int, default=EPISODES, help='number of episodes for choice and score')
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Choose, evaluate, write. Policies of the package that are better stay. Exit with 2 on wrong input."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        found = runs_of(options.runs)
    except ValueError as error:
        parser.error(f'--runs: {error}')
    for (agent_id, env), required in SHIPPED.items():
        if (agent_id, env) not in found or agent_id not in (options.only or [agent_id]):
            continue
        print(f'{agent_id} {env}', file=sys.stderr, flush=True)
        best = best_of(found[agent_id, env], options.episodes)
        result = (
            'no self-contained policy'
            if best is None
            else ship(best, options.out / agent_id / env, required, options.episodes)
        )
        print(f'{agent_id} {env}: {result}', flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
