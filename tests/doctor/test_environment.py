"""The checks of an environment name the fault of an environment that has one, and nothing else."""

import json

import numpy as np
import pytest

from xagents.doctor.environment import check_environment
from xagents.doctor.page import environment_page
from xagents.doctor.random_policy import RandomPolicy
from xagents.envs.env_factory import EnvFactory

HERE = 'tests.faulty_envs:{}'
FAULTS = {
    'OutOfBounds': 'bounds',
    'Constant': 'constant-observations',
    'Huge': 'observation-scale',
    'NoReward': 'sparse-reward',
    'HugeReward': 'reward-scale',
    'Endless': 'endless-episodes',
    'HiddenLimit': 'time-limit',
    'Unseeded': 'determinism',
    'NotFinite': 'not-finite',
    'Unbounded': 'action-bounds',
    'WrongDtype': 'contract',
}


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch):
    """Measure only the plain loop: the other vectors start processes and compile."""
    monkeypatch.setattr('xagents.doctor.environment.VECTORS', ('sync', 'native'))
    monkeypatch.setattr('xagents.doctor.environment.SPEED_SECONDS', 0.02)


@pytest.fixture
def check():
    return lambda env, **options: check_environment(EnvFactory(env), episodes=40, seconds=2.0, **options)


def test_nothing_is_found_in_a_correct_environment(check):
    report = check(HERE.format('Walk'))
    assert report.findings == []
    numbers = report.numbers
    assert numbers['deterministic'] and numbers['exact_resume'] and numbers['episodes'] >= 40
    assert 0 < numbers['return_mean'] < 1  # the right end in about half of the episodes
    assert numbers['reward_nonzero'] == pytest.approx(numbers['return_mean'] / numbers['episode_length'], rel=0.1)
    assert numbers['steps_per_second']['sync'] > 100


@pytest.mark.parametrize(('name', 'finding'), FAULTS.items())
def test_the_fault_is_named(check, name, finding):
    found = [one.name for one in check(HERE.format(name)).findings]
    assert finding in found
    # the checker of Gymnasium also reports some of the faults
    assert set(found) <= {finding, 'contract', *(('sparse-reward',) if name == 'Unbounded' else ())}


def test_random_actions_are_legal_and_uniform():
    """Of a mask, only legal actions are drawn, each equally often."""
    with EnvFactory('tests.masked_problems:TwoLegal-v0')(in_process=True) as envs:
        policy, observations = RandomPolicy(envs, 0), envs.reset(seed=0)
        masks = np.repeat(envs.encoder.masks(observations), 600, 0)
        noise = policy.draw_noise(np.random.default_rng(0), (600,))
        actions = policy(np.repeat(observations, 600, 0), noise)['actions']
    legal = np.flatnonzero(masks[0])
    counts = np.bincount(actions, minlength=masks.shape[1])
    assert counts[legal].min() > 600 / len(legal) / 2
    assert counts.sum() == counts[legal].sum()


def test_pages(check):
    report = check(HERE.format('Huge'))
    page = environment_page('huge', report, width=100)
    assert page.splitlines()[0] == 'huge'
    assert 'observation-scale: element' in page and '--normalize-obs' in page
    assert max(map(len, page.splitlines())) <= 100
    record = json.loads(environment_page('huge', report, as_json=True))
    assert record['findings'][-1]['name'] == 'observation-scale'
    assert record['episodes'] == report.numbers['episodes']
