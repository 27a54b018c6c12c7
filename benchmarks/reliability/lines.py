"""Random command lines, .cfg and .yaml files, made from the declared options and then damaged.

Sizes are small, so that a correct line takes little time.
"""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from xagents.cli.commands import Command, commands
from xagents.options.declaration import Option
from xagents.registry.agents import agents, find_agent

DISCRETE, CONTINUOUS = ('CartPole-v1', 'MountainCar-v0', 'Acrobot-v1'), ('Pendulum-v1', 'MountainCarContinuous-v0')
ENVIRONMENTS = DISCRETE + CONTINUOUS
ATARI = 'PongNoFrameskip-v4'
SUITED = {'dqn': DISCRETE, 'ddpg': CONTINUOUS, 'td3': CONTINUOUS}
WRONG_ENVIRONMENTS = (
    'CartPole-v9', 'Cartpole-v1', 'nothing:CartPole-v1', 'gym:CartPole-v1', '', ':', 'a/b:C-v0', '-v1',
)  # fmt: skip
# values of options with paths: files of `fuzz.make_files`, and missing files; nothing outside the folder
PATHS = (
    'run', 'torn', 'foreign', 'bare', 'empty', 'group', 'w.tf', 'w.tf.index', 'w.npz', 'h.parquet', 'net.cfg',
    'run.yaml', 'run/checkpoints/best', 'new', 'new/deeper', 'new.tf', 'new.keras', 'new.weights.h5', 'new.parquet',
    'new.png', 'new.pdf', 'nowhere/new', '.', 'text.txt', 'text.txt/new', 'a b', 'ü.tf', '-', '~', 'x' * 300,
)  # fmt: skip
PATH_OPTIONS = {
    'run_dir', 'resume', 'config', 'weights', 'checkpoints', 'history_checkpoint', 'tensorboard', 'out', 'video_dir',
    'frame_dir', 'model', 'actor_model', 'critic_model',
}  # fmt: skip
GOOD_PATHS = {
    'run_dir': ('new', 'run'), 'weights': ('w.tf',), 'checkpoints': ('new.tf', 'new.keras'), 'tensorboard': ('new',),
    'history_checkpoint': ('new.parquet',), 'out': ('new', 'new.png'), 'config': ('bare/config.yaml',),
}  # fmt: skip
TEXTS = {
    'env': (*ENVIRONMENTS, *WRONG_ENVIRONMENTS),
    'storage': ('sqlite:///s.db', 'sqlite:///nowhere/s.db', 'journal:s.log', 'x://x', 'sqlite:', 'x', '://'),
    'study': ('s', 'ppo-CartPole-v1', ' ', 'ü', 's' * 300),
    'from_study': ('s', 'none', ''),
    'wrapper': ('gymnasium.wrappers:ClipAction', 'gymnasium.wrappers:X', 'nothing:X', 'gymnasium', ':', 'json:dumps'),
    'env_kwargs': ('gravity=9', 'g=1', 'render_mode=human', 'x', '=', 'a=[', 'sutton_barto_reward=true', 'a={"b":1}'),
    'stages': ('none', 'collect', ''),
}  # fmt: skip
GOOD_NUMBERS = ('1', '2', '3', '8', '16', '1e1', '0.5', '0.9', '1e-3', '0', '-1')
WRONG_NUMBERS = (
    '-7', '1.5', 'nan', 'inf', '-inf', '1e400', 'x', '0x10', '', ' ', '٣', '½', '--', '1,5', '1e', 'None', '+',
)  # fmt: skip
# not for options whose size costs memory or time before the work begins
HUGE = ('9' * 30, '1e30', '4294967296', '18446744073709551616')
COSTLY = ('n_envs', 'net', 'n_steps', 'frame_stack', 'n_jobs', 'grid_jobs', 'seeds', 'threads', 'units')
WORDS = (
    '--', '-', '-h', '--help', '--lr', '--no-quiet', '--quiet=1', '--nothing', '-lr', '--=', '---', 'ppo', 'x', '#',
    '💥',
)  # fmt: skip


def text(rng: Random) -> str:
    """Return a random text as from a shell, without paths out of the folder."""
    alphabets = (string.printable.replace('/', ''), 'äß½٣💥\u2028\u202e\x85\ufeff\u0301漢', '-=.[]{}#%&*!|>\'"@`,:?~')
    found = ''.join(rng.choice(rng.choice(alphabets)) for _ in range(rng.randint(0, 12)))
    return '' if found == '..' else found


@dataclass
class Line:
    """One example: words of a command line, the files in its folder, and the type of the random part."""

    words: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    file_type: str = 'line'

    def __str__(self) -> str:
        shown = {name: content.decode('utf-8', 'backslashreplace') for name, content in self.files.items()}
        return f'{self.words}' + (f' with {shown}' if shown else '')


# --------------------------------------------------------------------------------------------------------------- values


def values(rng: Random, option: Option) -> str:
    """Return one value of an option, mostly a valid one, as on the command line."""
    case = rng.randint(0, 19)
    if case == 0:
        return text(rng)
    if case == 1 and option.type is not str:
        return rng.choice(WRONG_NUMBERS)
    if option.type is bool:
        return rng.choice(['true', 'false', 'yes', 'off', '1'])
    if option.choices is not None:
        return rng.choice([*map(str, option.choices)] * 4 + [f'{option.choices[0]}x', 'PPO'])
    if option.type is dict:
        return rng.choice(TEXTS['env_kwargs'])
    if option.type is str:
        if case > 6 and option.name in GOOD_PATHS:
            return rng.choice(GOOD_PATHS[option.name])
        pool = PATHS if option.name in PATH_OPTIONS else TEXTS.get(option.name, ('x', 'name', 'a b', ' '))
        return rng.choice(pool)
    if case == 2 and option.name not in COSTLY:
        return rng.choice(HUGE)
    admitted = [number for number in GOOD_NUMBERS if admits(option, number)]
    return rng.choice(admitted or GOOD_NUMBERS)


def admits(option: Option, number: str) -> bool:
    """Return whether a number is valid for an option."""
    try:
        option.parse([number] if option.is_list else number)
    except ValueError:
        return False
    return True


def flags(rng: Random, option: Option) -> list[str]:
    """Return an option with its values as on the command line."""
    flag = rng.choice(option.flags)
    if option.type is bool:
        return [flag]
    count = rng.randint(1, 3) if option.is_list or option.type is dict else 1
    given = [values(rng, option) for _ in range(count)]
    return [f'{flag}={given[0]}', *given[1:]] if rng.randint(0, 5) == 0 else [flag, *given]


# ---------------------------------------------------------------------------------------------------------------- lines


def lines(rng: Random) -> Line:
    """Return a command line: required words, some options, and in a third of the cases some damage."""
    command = commands[rng.choice([*commands, *['train'] * 8])]
    agent_id = rng.choice([*agents]) if command.takes_agent else None
    known = command.options(agent_id)
    words = [command.name, *([agent_id] if agent_id else []), *needed(rng, command, agent_id)]
    names = rng.sample([*known], min(rng.randint(0, 4), len(known)))
    for name in names:
        words += flags(rng, known[name])
    if not rng.randint(0, 2):
        for _ in range(rng.randint(1, 3)):
            words = damaged(rng, words)
    return Line([word for word in words if word != '--debug'])


def environments(rng: Random, agent_id: str | None) -> str:
    """Return an environment, mostly one for the agent."""
    return rng.choice(SUITED.get(agent_id or '', ENVIRONMENTS) * 4 + ENVIRONMENTS)


def needed(rng: Random, command: Command, agent_id: str | None) -> list[str]:
    """Return the required words of a command."""
    folder = rng.choice(['run', 'run', 'run', 'torn', 'bare', 'group', 'empty', 'nowhere'])
    if command.name in ('train', 'tune'):
        begin = ['--env', environments(rng, agent_id)]
        begin += ['--max-steps', '10'] if command.name == 'train' else []
        return rng.choice([begin, begin, begin, begin, begin[:2], [], ['--resume', folder]])
    if command.name in ('play', 'evaluate', 'export'):
        out = ['--out', 'new'] if command.name == 'export' else []
        return [*rng.choice([['--run-dir', folder], ['--weights', 'w.tf'], []]), *out]
    return {
        'plot': rng.choice([['h.parquet'], ['--run-dir', folder], []]),
        'runs': rng.choice([[folder], ['.'], []]),
        'completion': [rng.choice(['bash', 'zsh', 'fish', 'sh'])],
    }.get(command.name, rng.choice([[], ['ppo'], ['ppx']]))


def damaged(rng: Random, words: list[str]) -> list[str]:
    """Return words with one mistake."""
    place = rng.randint(0, max(len(words) - 1, 0))
    kind = rng.choice(['drop', 'twice', 'swap', 'insert', 'replace', 'cut', 'text'])
    found = moved(rng, words, place, kind, WORDS)
    if found is not None:
        return found
    if kind == 'cut':
        new = words[place][: rng.randint(0, len(words[place]))]
    else:
        new = text(rng) if kind == 'text' else rng.choice(WORDS)
    return [*words[:place], new, *words[place + 1 :]]


def moved(rng: Random, items: list[str], place: int, kind: str, pool: Sequence[str]) -> list[str] | None:
    """Return words or lines with one of them removed, doubled, moved or added; None for other changes."""
    before, item, after = items[:place], items[place : place + 1], items[place + 1 :]
    if kind == 'drop' or not item:
        return before + after
    if kind == 'twice':
        return before + item * 2 + after
    if kind == 'swap':
        return before + after[:1] + item + after[1:]
    return [*before, rng.choice(pool), *item, *after] if kind == 'insert' else None


# ---------------------------------------------------------------------------------------------------------------- files

CFG_VALUES = {
    'units': ('1', '8', '64'), 'filters': ('1', '8'), 'size': ('1', '3', '8'), 'stride': ('1', '2'),
    'activation': ('relu', 'tanh', 'softmax', 'rlu'), 'initializer': ('orthogonal', 'glorot_uniform', 'x'),
    'gain': ('1', '0.01', '-1', 'nan', '1e400'), 'common': ('1', '0', 'yes', '2'), 'output': ('1', '0', 'true', 'x'),
    'from': ('input', 'dense-0', 'dense-actor', 'nothing', ''), 'init': ('0', '-0.5', 'inf'),
}  # fmt: skip
CFG_WRONG = ('0', '-1', '1.5', 'x', '', '1e3', '9' * 30, '1000001', '%(a)s', '=', '٣')
CFG_LINES = (
    '[dense-x]', '[flatten-0]', '[convolutional-0]', '[log-std]', '[action]', '[DEFAULT]', '[', ']', '[dense-0',
    'output=1', 'units=8', 'units', '=8', '# x', 'units: 8', ' units=8', '\tcommon=1', 'filters=8', 'size=3',
    'stride=1', '[dense- ]', '[x]',
)  # fmt: skip


def networks(rng: Random) -> Line:
    """Return a .cfg file of the package with some changed lines, and a command line that uses it."""
    entry = find_agent(rng.choice([*agents]))
    network = rng.choice(entry.networks)
    shipped = [path for paths in entry[network.option].values() for path in paths]
    path = Path(rng.choice(shipped))
    content = path.read_text().splitlines()
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        content = changed_lines(rng, content, CFG_LINES, '=', CFG_VALUES, CFG_WRONG)
    images = path.name.startswith('cnn') and entry.id not in ('ddpg', 'td3') and rng.randint(0, 3)
    env = ATARI if images else environments(rng, entry.id)
    words = ['train', entry.id, '--env', env, '--max-steps', '10', '--' + network.option.replace('_', '-'), 'net.cfg']
    return Line(words, {'net.cfg': encoded(rng, content)}, 'cfg')


YAML_VALUES = (
    '1', '0.1', 'true', 'no', '~', '', '[1, 2]', '[]', '{}', '{a: 1}', '[[8], [8, 8]]', '"x"', "'1'", '1e-3',
    '.nan', '.inf', '-1', '2026-11-22', '0x10', '010', '1:30', '!!python/object/apply:os.getcwd []', '!!int x',
    '!!str 1', '&a [1]', '*a', '*b', '|', '>-', '[1, [2]]', '{1: 2}', '"\\u0000"', '"', '[', '{', '@', '`', '%',
    '- 1', '!', '&', '*', 'x: y', '12345678901234567890', '\u2028', 'ü', '[true, false]', '[0.1, x]', '[~]',
)  # fmt: skip
YAML_LINES = (
    '---', '...', '- x', '\t', '? a', ': b', '<<: {lr: 1}', '&a', '%YAML 9.9', '# x', 'lr', 'lr:1', '"lr": 0.1',
    '? [a, b]', 'about: {command: 1}', 'about: [', 'agent: dqn', 'agent: [ppo, a2c]', 'agent: x', 'agent:', '1: 2',
    'true: 1', 'null: 1', 'seed: 1', 'seed: 1', 'resume: run', 'config: run.yaml', 'debug: true',
    'print-config: true', '  lr: 1', 'env: &e CartPole-v1',
)  # fmt: skip


def configurations(rng: Random) -> Line:
    """Return a .yaml file of options, some of them wrong, and a command line that uses it."""
    agent_id = rng.choice([*agents])
    known = commands['train'].options(agent_id)
    content = [f'agent: {agent_id}', f'env: {environments(rng, agent_id)}', 'max-steps: 10']
    for name in rng.sample([*known], rng.randint(0, 5)):
        option = known[name]
        value = values(rng, option) if rng.randint(0, 9) else rng.choice(YAML_VALUES)
        value = value if rng.randint(0, 11) else f'[{value}]'
        content.append(f'{rng.choice([name, option.flag[2:]])}: {value}')
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        content = changed_lines(rng, content, YAML_LINES, ': ', {}, YAML_VALUES)
    words = ['train', *rng.choice([[], [], [agent_id]]), '--config', 'run.yaml']
    more = [[], ['--run-dir', 'new'], ['--run-dir', 'new'], ['--print-config'], ['--lr', '0.1'], ['--seeds', '1', '2']]
    words += rng.choice(more)
    return Line(words, {'run.yaml': encoded(rng, content)}, 'yaml')


def changed_lines(
    rng: Random, content: list[str], pool: tuple[str, ...], equals: str, known: Mapping[str, tuple[str, ...]],
    wrong: tuple[str, ...],
) -> list[str]:  # fmt: skip
    """Return the lines of a file with one change."""
    place = rng.randint(0, max(len(content) - 1, 0))
    kind = rng.choice(['drop', 'twice', 'swap', 'insert', *['value'] * 3, 'text'])
    changed = moved(rng, content, place, kind, pool)
    if changed is not None:
        return changed
    before, line, after = content[:place], content[place], content[place + 1 :]
    if kind == 'text':
        return [*before, text(rng), line, *after]
    key, found, _ = line.partition(equals)
    if not found:
        return content
    good = known.get(key, ())
    value = rng.choice(good if good and rng.randint(0, 2) else wrong)
    return [*before, f'{key}{equals}{value}', *after]


def encoded(rng: Random, content: list[str]) -> bytes:
    """Return the bytes of a file, mostly in UTF-8."""
    whole = '\n'.join(content) + '\n'
    kind = rng.randint(0, 39)
    if kind == 0:
        return whole.encode('utf-16')
    if kind == 1:
        return b'\xef\xbb\xbf' + whole.encode()
    if kind == 2:
        return whole.encode() + b'\0'
    if kind == 3:
        place = rng.randint(0, len(whole))
        return whole[:place].encode() + rng.randbytes(rng.randint(0, 4)) + whole[place:].encode()
    return b'' if kind == 4 else whole.replace('\n', '\r\n').encode() if kind == 5 else whole.encode()


def example(rng: Random) -> Line:
    """Return an example of any type."""
    return rng.choice([lines, networks, configurations])(rng)


def examples() -> st.SearchStrategy[Line]:
    """Return a strategy of all types with equal probability.

    Every example has its own seed: Hypothesis would make most of them by small changes of the one before, and repeat
    the same error message many times.
    """
    return st.randoms(use_true_random=True).map(example)
