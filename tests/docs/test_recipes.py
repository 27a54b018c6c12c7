"""What docs/recipes.md, runs.md, datasets.md, architecture.md and the examples show is so: their Python is executed."""

import contextlib
import re
import sqlite3
import sys
from pathlib import Path

import pandas as pd
import pytest

import xagents
from xagents.checkpoints.state_files import read_state
from xagents.datasets import dataset_names
from xagents.logs.metrics import read_metrics

ROOT = Path(xagents.__file__).parents[1]
EXAMPLES = ROOT / 'examples'


@pytest.fixture
def execute_blocks(folder, without_xla, shared_programs, empty_registries, monkeypatch, capsys):
    """Executes `(name, code)` pairs in one namespace and an empty folder; returns what was printed."""
    monkeypatch.setenv('MPLBACKEND', 'Agg')
    monkeypatch.syspath_prepend(EXAMPLES)

    def execute(blocks):
        namespace = {'__name__': 'notebook'}
        for name, block in blocks:
            exec(compile(block, name, 'exec'), namespace)
        return capsys.readouterr().out

    yield execute
    for example in EXAMPLES.glob('*.py'):
        sys.modules.pop(example.stem, None)


def blocks_of(page):
    text = page.read_text()
    found = list(re.finditer(r'^```python\n(.*?)^```', text, re.DOTALL | re.MULTILINE))
    # the line of the page stands in a traceback
    return [(f'{page.name}:{text[: block.start()].count(chr(10)) + 2}', block[1]) for block in found]


@pytest.mark.parametrize('page', ['recipes', 'populations', 'extending'])
def test_long_pages_compile_and_import_what_exists(page):
    for name, block in blocks_of(ROOT / 'docs' / f'{page}.md'):
        compile(block, name, 'exec')
        exec('\n'.join(re.findall(r'^(?:import|from) .*', block, re.MULTILINE)), {})


@pytest.mark.slow
def test_the_recipes_run(execute_blocks):
    page = ROOT / 'docs' / 'recipes.md'
    blocks = blocks_of(page)
    assert len(blocks) >= 12
    said = execute_blocks(blocks)
    shown = re.search(r'^Recipe\(.*\)$', page.read_text(), re.MULTILINE)[0]
    assert shown in said.splitlines(), 'the page shows other stages than PPO has'
    assert 'overlap: A2C learns from the rollouts of its present policy' in said
    assert Path('lengths.txt').read_text()


def test_a_tracker_of_ones_own_logs_every_step_once(execute_blocks):
    blocks = [(name, code) for name, code in blocks_of(ROOT / 'docs' / 'recipes.md') if 'sqlite3' in code]
    (name, code) = blocks[0]
    assert (
        len(blocks) == 1
        and len(re.search(r'^@xagents.*?(?=\n\n\n)', code, re.DOTALL | re.MULTILINE)[0].split('\n')) <= 12
    )
    execute_blocks([('before', 'import xagents\nfrom xagents.pipeline import stage'), (name, code)])
    with contextlib.closing(sqlite3.connect('metrics.db')) as database:
        rows = database.execute("SELECT step, value FROM metrics WHERE name = 'steps' ORDER BY step").fetchall()
    assert all(step == value for step, value in rows) and rows[-1][0] >= 2000
    metrics = read_metrics('runs/tracked/metrics.parquet')
    assert set(metrics['steps']) <= {step for step, _ in rows}, 'the resumed run is not in the database'


@pytest.mark.slow
def test_the_page_of_runs_does_what_it_says(execute_blocks):
    blocks = blocks_of(ROOT / 'docs' / 'runs.md')
    assert blocks
    execute_blocks(blocks)
    config = Path('runs/python/config.yaml').read_text()
    assert 'max-steps: 3000' in config and 'resumed:' in config


def test_the_page_of_data_sets_does_what_it_says(execute_blocks, tmp_path, monkeypatch):
    monkeypatch.setenv(dataset_names.ROOT, str(tmp_path / 'datasets'))
    blocks = blocks_of(ROOT / 'docs' / 'datasets.md')
    assert len(blocks) == 2
    with pytest.warns(UserWarning, match='is set to None'):  # Minari wants to know the author
        execute_blocks(blocks)
    assert list(dataset_names.list_names()) == ['cartpole/python-v0', 'cartpole/random-v0']


def test_the_page_of_several_agents_does_what_it_says(execute_blocks):
    one, several = blocks_of(ROOT / 'docs' / 'teams.md')
    known = ('what it knows', "assert agent.envs.agents == ('agent_0', 'agent_1', 'agent_2') and agent.n_envs == 6")
    execute_blocks([one, known])
    learned = "assert team.map['agent_0'] == 'prey' and team.steps >= 1000 and 'hunter/loss/policy' in log"
    execute_blocks([several, ('who plays', learned)])


@pytest.mark.slow
def test_the_page_of_populations_does_what_it_says(execute_blocks):
    (block,) = blocks_of(ROOT / 'docs' / 'populations.md')
    execute_blocks([block, ('the end', "assert best.startswith('population/round-0002/member-') and policy.spaces")])


def test_a_policy_acts_as_its_page_says(execute_blocks):
    with contextlib.closing(
        xagents.make('ppo', 'CartPole-v1', n_steps=16, run_dir='runs/cartpole', quiet=True)
    ) as agent:
        agent.fit(max_steps=64)
    acts, ships = blocks_of(ROOT / 'docs' / 'policy.md')
    known = ('what it knows', "assert found.score['mean'] == 500.0 and found.command.startswith('xagents train ppo ')")
    execute_blocks([acts, ('the end', 'assert reward > 5'), ships, known])


def test_what_the_architecture_shows_runs(execute_blocks):
    blocks = blocks_of(ROOT / 'docs' / 'architecture.md')
    assert len(blocks) == 3
    execute_blocks(blocks)


def test_a_field_of_ones_own_is_resumed(execute_blocks, tmp_path):
    said = []
    for _ in range(2):
        said.append(execute_blocks([('call', "import count_falls\ncount_falls.main('falls')")]))
        del sys.modules['count_falls']
    first, second = (re.search(r'^(\d+) falls in (\d+) steps$', out, re.MULTILINE) for out in said)
    assert 0 < int(first[1]) < int(second[1])
    assert int(second[2]) >= int(first[2]) + 1000
    # no episode of an agent so young lasts until the time limit, so each is a fall; none is counted twice
    assert int(second[1]) == len(pd.read_parquet(tmp_path / 'falls' / 'history.parquet'))


@pytest.mark.slow
def test_an_agent_of_the_examples_resumes_with_its_buffer(execute_blocks, tmp_path):
    """Stopped and resumed, it is the run that was never stopped; with another buffer it would learn otherwise."""
    options = '--env CartPole-v1 --n-envs 4 --n-steps 16 --seed 1 --quiet --final-episodes 0 --overlap'
    lines = [
        f'train replay-ppo {options} --max-steps 1600 --run-dir whole',
        f'train replay-ppo {options} --max-steps 800 --run-dir stopped',
        'train --resume stopped --max-steps 1600',
        'evaluate --run-dir stopped --episodes 1',
    ]
    blocks = [('import', 'import replay_ppo\nfrom xagents.cli import execute')]
    execute_blocks(blocks + [(line, f'execute({line.split()!r})') for line in lines])
    whole, stopped = (read_state(tmp_path / name / 'checkpoints' / 'last') for name in ('whole', 'stopped'))
    assert whole.record['counters']['updates'] == stopped.record['counters']['updates'] > 0
    for one, other in zip(whole.weights[0], stopped.weights[0], strict=True):
        assert one.tobytes() == other.tobytes()
    assert list((tmp_path / 'stopped' / 'replay').iterdir()), 'the buffer was not saved'
