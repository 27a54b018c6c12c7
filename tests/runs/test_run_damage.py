"""Damaged and foreign files of a run: one line that names them, and nothing is made worse."""

import json
import shutil

import numpy as np
import pytest

from tests.runs.folders import cut, link, untouched
from tests.small_agents import make
from xagents.factory import load as runs
from xagents.factory.load import load, resume

pytestmark = pytest.mark.usefixtures('small_agents', 'disks_are_not_waited_for')
RECORDS = ('{}', '[1, 2]', '{"agent": "small", "options": [], "counters": {}}')
DAMAGES = {
    'npz empty': lambda c: cut(c / 'state.npz', 0),
    'npz half': lambda c: cut(c / 'state.npz', 0.5),
    'npz short': lambda c: cut(c / 'state.npz', 0.99),
    'npz gone': lambda c: (c / 'state.npz').unlink(),
    'npz other': lambda c: np.savez(c / 'state.npz', x=np.zeros(3)),
    'json empty': lambda c: cut(c / 'state.json', 0),
    'json half': lambda c: cut(c / 'state.json', 0.5),
    'json gone': lambda c: (c / 'state.json').unlink(),
    **{f'json {text}': lambda c, text=text: (c / 'state.json').write_text(text) for text in RECORDS},
}


def one_line(error):
    assert '\n' not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize('damage', DAMAGES)
def test_a_damaged_checkpoint_is_one_line_that_names_it(damage, copied, refused):
    checkpoint = (copied / 'checkpoints' / 'last').resolve()
    DAMAGES[damage](checkpoint)
    file = {'npz': 'state.npz', 'json': 'state.json'}[damage.split()[0]]
    problem = f'{checkpoint} is damaged' if damage == 'npz other' else f'{checkpoint / file} is damaged or not a'
    with untouched(copied):
        refused(f'train small --resume {copied} --max-steps 300', problem)
        with pytest.raises(ValueError, match=checkpoint.name) as error:
            load(copied, 'last')
    one_line(error)


def test_a_damaged_one_names_others_that_a_run_can_go_on_with_as_long_as_there_are_any(tmp_path):
    folder = tmp_path / 'run'
    make().fit(max_steps=100, run_dir=str(folder), checkpoint_frequency=40, final_episodes=0)
    cut((folder / 'checkpoints' / 'last' / 'state.npz').resolve(), 0.5)
    with pytest.raises(ValueError, match='link checkpoints/last to another one') as error:
        resume(folder)
    named = one_line(error).rpartition('(')[2].partition(')')[0].split(', ')
    assert named
    for name in named:
        link(folder, name)
        again = resume(folder)
        assert again.steps == int(name.split('-')[1])
        again.close()
    for path in (folder / 'checkpoints').glob('*-*/state.json'):
        cut(path, 0.5)
    for use in (lambda: load(folder), lambda: load(folder, 'last'), lambda: resume(folder)):
        with pytest.raises(ValueError, match=r'train anew$') as error:
            use()
        one_line(error)


def test_damaged_best_weights_do_not_keep_a_run_from_going_on(copied):
    best = (copied / 'checkpoints' / 'best').resolve()
    record = json.loads((copied / 'checkpoints' / 'last' / 'state.json').read_text())
    for name in {best.name, record['best']}:
        cut(copied / 'checkpoints' / name / 'state.npz', 0.5)
    with pytest.raises(ValueError, match=r'use another one \(--checkpoint (step|last)-'):
        load(copied)
    agent = resume(copied, max_steps=400)
    assert 'The best weights are lost' in ' '.join(agent.progress.startup_lines) and np.isnan(agent.context.best_reward)
    agent.fit()
    assert load(copied).steps <= agent.steps and np.isfinite(agent.best_reward)


def test_damaged_metrics_are_named_before_anything_is_written(copied, typed, refused):
    path, line = copied / 'metrics.parquet', f'train small --resume {copied} --max-steps 400'
    cut(path, 0.5)
    with untouched(copied):
        refused(line, f'--resume: got {path}, which cannot be continued', 'without that file the run resumes')
    path.unlink()
    assert typed(line)[0] == 0


@pytest.mark.parametrize('foreign', ['agent', 'network'])
def test_a_foreign_checkpoint_is_one_line_that_names_it(foreign, copied, tmp_path, refused):
    other = make('small-replay') if foreign == 'agent' else make(net=[7])
    other.fit(max_steps=60, run_dir=str(tmp_path / 'other'))
    checkpoint = (copied / 'checkpoints' / 'last').resolve()
    theirs = tmp_path / 'other' / 'checkpoints' / 'last'
    shutil.copy(theirs / 'state.npz', checkpoint / 'state.npz')
    if foreign == 'agent':
        shutil.copy(theirs / 'state.json', checkpoint / 'state.json')
    problem = (
        'got a checkpoint of small-replay, expected one of small'
        if foreign == 'agent'
        else 'is damaged or of another network'
    )
    with untouched(copied):
        recovery_advice = f'{problem}: train anew; the best weights are whole'
        refused(f'train small --resume {copied} --max-steps 300', checkpoint, recovery_advice)
        with pytest.raises(ValueError, match=checkpoint.name) as error:
            load(copied, 'last')
    one_line(error)


@pytest.mark.parametrize('damage', ['torn', 'missing'])
def test_a_lost_replay_buffer_can_be_filled_anew(damage, tmp_path, typed, refused):
    folder = tmp_path / 'run'
    first = make('small-replay')
    first.fit(max_steps=90, run_dir=str(folder))
    segment = next((folder / 'replay').glob('*.npz'))
    segment.write_bytes(segment.read_bytes()[:100]) if damage == 'torn' else segment.unlink()
    line = f'train small-replay --resume {folder} --max-steps 180'
    with untouched(folder):
        said = refused(line, f'{segment}: ')
        assert said.endswith(f': move {folder}/replay away to resume with an empty replay buffer')
    shutil.move(folder / 'replay', tmp_path / 'away')
    code, shown, said = typed(line)
    assert (code, said) == (0, [])
    assert f'The replay buffer starts empty: there is no {folder}/replay' in shown
    agent = resume(folder, quiet=True)
    assert agent.context.steps >= 180 and len(agent.buffer) == agent.context.steps - first.context.steps


@pytest.mark.parametrize(
    'text', [b'', b'a: [', b'agent: nobody', b'\xff\xfe\x00', b'agent: small\nbanana: 3', b'[1, 2]']
)
def test_nonsense_for_settings_is_one_line_that_names_the_file(text, copied, refused):
    (copied / 'config.yaml').write_bytes(text)
    with untouched(copied):
        refused(f'train small --resume {copied} --max-steps 201', 'config.yaml')
        with pytest.raises(ValueError, match=r'config\.yaml') as error:
            load(copied)
    one_line(error)


def test_settings_that_name_the_agent_alone_do(copied, typed):
    (copied / 'config.yaml').write_text('agent: small\n')  # the checkpoint knows the rest
    code, _, said = typed(f'train small --resume {copied} --max-steps 201')
    assert (code, said) == (0, [])


def test_environments_that_a_run_was_not_trained_on_are_told_from_damage(copied, refused):
    problem = (
        f'got CartPole-v1, expected an environment that fits the networks of {runs.find_checkpoint(copied, "best")}'
    )
    said = refused(f'evaluate small --run-dir {copied} --env CartPole-v1')
    spaces = 'observations: Box(2,) float32, actions: Discrete(2)'
    assert said == f'xagents evaluate: --env: {problem}: {spaces}'
