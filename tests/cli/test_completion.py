"""Completion: the scripts hold what the declarations say, bash completes by them, and no Python runs at Tab."""

import re
import shlex
import shutil
import subprocess

import pytest

from xagents.cli.checks import SHELLS
from xagents.cli.commands import commands
from xagents.cli.completion import completion_script
from xagents.registry.agents import BUILTIN_AGENTS

ASK = r"""
source "$1"; shift
for line; do
    IFS=' ' read -ra COMP_WORDS <<< "$line"
    [[ $line == *' ' ]] && COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _xagents xagents "${COMP_WORDS[COMP_CWORD]}" ''
    (IFS=:; echo "${COMPREPLY[*]}")
done
"""
PAGES = [(name,) for name in commands]
PAGES += [(name, agent_id) for name in commands if commands[name].takes_agent for agent_id in BUILTIN_AGENTS]
bash = pytest.mark.skipif(shutil.which('bash') is None, reason='bash is not installed')


def flags_of(name, agent_id=None):
    sections = commands[name].sections(agent_id).values()
    return {f for section in sections for o in section.values() if not o.ignored for f in o.flags}


@pytest.fixture(scope='module')
def complete(tmp_path_factory):
    """What bash offers for the last word of each line; a line that ends in a space asks for a new word."""
    folder = tmp_path_factory.mktemp('completion')
    (folder / 'a folder').mkdir()
    (folder / 'net.cfg').touch()
    script = tmp_path_factory.mktemp('script') / 'xagents'
    script.write_text(completion_script('bash', commands))

    def ask(*lines):
        # an empty PATH: whatever is completed is completed without starting anything
        words = [shutil.which('bash'), '--norc', '-c', ASK, 'bash', script, *(f'xagents {line}' for line in lines)]
        done = subprocess.run(words, cwd=folder, env={'PATH': ''}, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and not done.stderr, done.stderr
        return [sorted(filter(None, line.split(':'))) for line in done.stdout.splitlines()]

    return ask


@bash
@pytest.mark.parametrize(
    ('line', 'offered'),
    [
        *(('', list(commands)), ('--', ['--help', '--verbose', '--version'])),
        *(('pl', ['play', 'plot']), ('train ', list(BUILTIN_AGENTS))),
        *(('tune d', ['ddpg', 'dqn']), ('presets t', ['td3', 'td3-bc', 'tqc', 'trpo']), ('completion ', list(SHELLS))),
        # choices, once or several times; --vector=as is three words to bash
        *(
            ('train ppo --vector ', ['auto', 'sync', 'async', 'compiled', 'native', 'envpool']),
            ('train ppo --lr 1 --vector as', ['async']),
        ),
        *(
            ('train ppo --vector =', ['auto', 'sync', 'async', 'compiled', 'native', 'envpool']),
            ('train ppo --vector = as', ['async']),
        ),
        *(('tune ppo --vector sync as', ['async']), ('train ppo --clip-schedule l', ['linear'])),
        *(('train ppo --env CartP', ['CartPole-v1']), ('plot --by ', ['step', 'time'])),
        *(('play ppo --pretrained Ca', ['CartPole-v1']), ('evaluate dqn --pretrained L', ['LunarLander-v3'])),
        *(('record iql --pretrained ', []), ('export ppo --pret', [])),
        # paths; a number is none
        *(('train ppo --model n', ['net.cfg']), ('train ppo --tensorboard ', ['a folder']), ('train ppo --lr ', [])),
        *(('train --config n', ['net.cfg']), ('train --resume ', ['a folder']), ('runs a ', ['a folder'])),
        *(('play ppo --weights x.tf n', ['net.cfg']), ('plot --run-dir a ', ['a folder'])),
        *(('plot ', ['a folder', 'net.cfg']), ('plot x.parquet ', ['a folder', 'net.cfg'])),
        # flags, also behind one that takes several paths
        *(('play ppo --weights x.tf --vec', ['--vector']), ('train --config x.yaml --vec', ['--vector'])),
        *(('train ppo --model=x --env-kwargs a = 1 --vec', ['--vector']), ('plot x.parquet --o', ['--out'])),
    ],
)
def test_what_is_offered(complete, line, offered):
    assert complete(line) == [sorted(offered)]


@bash
def test_flags_are_those_that_are_admitted_wherever_one_may_follow(complete):
    for page, offered in zip(PAGES, complete(*(f'{" ".join(page)} --' for page in PAGES)), strict=True):
        assert offered == sorted(flags_of(*page) | {'--help'})
    for offered in complete(*(f'train ppo {words}' for words in ('', '--vector sync ', '--quiet ', '--lr 1 '))):
        assert offered == sorted(flags_of('train', 'ppo') | {'-h', '--help'})


@pytest.mark.parametrize('shell', SHELLS)
def test_a_script_is_whole(shell):
    text = completion_script(shell, commands)
    words = set(re.findall(r'[\w-]+', text))
    assert words >= {*commands, *BUILTIN_AGENTS, *SHELLS, 'constant', 'linear', 'cosine', 'CartPole-v1'}
    for page in PAGES:
        assert words >= {flag.removeprefix('--') if shell == 'fish' else flag for flag in flags_of(*page)}
    if shell != 'bash':
        assert 'discount factor' in text and 'Train given an agent and environment' in text
        for line in text.splitlines():
            if not line.lstrip().startswith('#'):
                shlex.split(line)  # all quotes end on the line they begin on
    if shutil.which(shell):
        done = subprocess.run([shell, '-n'], input=text, capture_output=True, text=True, timeout=20)
        assert (done.returncode, done.stderr) == (0, '')
