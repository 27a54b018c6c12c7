"""Completion: the scripts are what the declarations say, bash completes by them, and no Python runs at Tab."""

import os
import re
import shlex
import shutil
import subprocess
import time

import pytest

from xagents.cli.commands import commands
from xagents.cli.completion import completion_script
from xagents.cli.completion_scripts import SHELLS
from xagents.options.declaration import describe
from xagents.options.errors import OptionError
from xagents.registry.agents import OURS

ASK = r"""
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_xagents xagents "${COMP_WORDS[COMP_CWORD]}" ''
printf '%s\n' "${COMPREPLY[@]}"
"""
bash = pytest.mark.skipif(shutil.which('bash') is None, reason='bash is not installed')


@pytest.fixture(scope='module')
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp('completion') / 'xagents.bash'
    path.write_text(completion_script('bash', commands))
    return path


@pytest.fixture
def complete(script, tmp_path):
    """What bash offers for the last word of a line; a line that ends in a space asks for a new word."""
    (tmp_path / 'net.cfg').touch()
    (tmp_path / 'a folder').mkdir()

    def ask(line):
        words = shlex.split(line) + ([''] if line.endswith(' ') else [])
        # an empty PATH: whatever is completed is completed without starting anything
        done = subprocess.run(
            [shutil.which('bash'), '--norc', '-c', ASK, 'bash', script, *words],
            cwd=tmp_path,
            env={'PATH': ''},
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert done.returncode == 0 and not done.stderr, done.stderr
        return [word for word in done.stdout.splitlines() if word]

    return ask


@bash
def test_commands_then_agents(complete):
    assert complete('xagents ') == [*commands, '--help', '--version']
    assert complete('xagents pl') == ['play', 'plot']
    assert complete('xagents train ')[: len(OURS)] == list(OURS)
    assert complete('xagents tune d') == ['ddpg', 'dqn']
    assert complete('xagents presets t') == ['td3', 'trpo']
    assert complete('xagents nothing ') == []


@bash
@pytest.mark.parametrize('name', [name for name, command in commands.items() if command.takes_agent])
@pytest.mark.parametrize('agent_id', OURS)
def test_flags_are_those_that_are_admitted(complete, name, agent_id):
    sections = commands[name].sections(agent_id).values()
    flags = {f for section in sections for o in section.values() if not o.without_effect for f in o.flags}
    offered = complete(f'xagents {name} {agent_id} --')
    assert set(offered) == flags | {'--help'} and len(offered) == len(set(offered))


@bash
def test_a_choice_is_offered_behind_its_flag_and_once(complete):
    assert complete('xagents train ppo --vector ') == ['auto', 'sync', 'async', 'envpool']
    assert complete('xagents train ppo --env CartPole-v1 --vector as') == ['async']
    assert complete('xagents train ppo --vector = as') == ['async'], '--vector=as is three words to bash'
    assert '--gamma' in complete('xagents train ppo --vector sync ')
    assert complete('xagents tune ppo --vector sync as') == ['async'], 'tune takes several'
    assert complete('xagents train ppo --clip-schedule l') == ['linear']
    assert complete('xagents train ppo --env CartP') == ['CartPole-v1']


@bash
def test_paths_are_completed_where_a_path_is_taken(complete):
    assert complete('xagents train ppo --model n') == ['net.cfg']
    assert complete('xagents train ppo --tensorboard ') == ['a folder']
    assert complete('xagents play ppo --weights x.tf n') == ['net.cfg'], 'one a model'
    assert complete('xagents train ppo --lr ') == [], 'a number is no path'
    assert '--lr' in complete('xagents train ppo --quiet '), 'a switch takes no value'
    assert sorted(complete('xagents plot ')) == ['a folder', 'net.cfg']


@bash
def test_it_is_fast(script):
    code = (
        f'source {shlex.quote(str(script))}; for i in {{1..50}}; do COMP_WORDS=(xagents train ppo --); COMP_CWORD=3; '
    )
    start = time.perf_counter()
    subprocess.run([shutil.which('bash'), '--norc', '-c', code + '_xagents; done'], check=True, timeout=60)
    assert (time.perf_counter() - start) / 50 < 0.1


@pytest.mark.parametrize('shell', SHELLS)
def test_the_shell_reads_the_script(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f'{shell} is not installed')
    path = tmp_path / 'script'
    path.write_text(completion_script(shell, commands))
    done = subprocess.run([shell, '-n', path], capture_output=True, text=True, timeout=20, env=os.environ)
    assert done.returncode == 0 and not done.stderr, done.stderr


def quotes_end(text):
    """Whether all quotes of a script end on the line they began on, comments apart."""
    for line in text.splitlines():
        if not line.lstrip().startswith('#'):
            shlex.split(line, comments=False)
    return True


@pytest.mark.parametrize('shell', SHELLS)
def test_a_script_is_whole(shell):
    text = completion_script(shell, commands)
    assert quotes_end(text.replace("\\'", '') if shell == 'fish' else text)
    assert not re.search(r'@[A-Z]+@', text), 'every place is filled'
    flag = (lambda name: f'-l {name[2:]} ') if shell == 'fish' else (lambda name: name)
    for command in commands.values():
        assert re.search(rf'\b{command.name}\b', text)
        for section in command.sections().values():
            assert all(flag(f) in text for o in section.values() if not o.without_effect for f in o.flags)
    for entry in OURS.values():
        assert all(flag(o.flag) in text for o in describe(entry.options).values() if not o.without_effect)


def test_zsh_tells_what_a_flag_does_with_colons_escaped():
    text = completion_script('zsh', commands)
    assert "'--gamma:discount factor; larger looks further ahead, with more variance'" in text
    entries = re.findall(r"^ +'(--?[^']*)'$", text, re.MULTILINE)
    assert len(entries) > 100
    assert all(len(re.findall(r'(?<!\\):', entry)) == 1 for entry in entries)


def test_fish_has_a_line_for_each_flag_of_a_command():
    lines = completion_script('fish', commands).splitlines()
    assert "complete -c xagents -n '__xagents_agent ppo' -l clip-schedule -r -f -a 'constant linear cosine'" in [
        line.partition(' -d ')[0] for line in lines
    ]
    folders = next(line for line in lines if '__xagents_on train' in line and '-l run-dir ' in line)
    assert '__fish_complete_directories' in folders
    assert all(line.count("'") % 2 == 0 for line in lines if line.startswith('complete') and "\\'" not in line)


def test_another_shell_is_refused_in_one_line():
    with pytest.raises(OptionError, match=r'^shell: got fsh, admits one of bash, zsh, fish \(did you mean fish\?\)$'):
        completion_script('fsh', commands)
