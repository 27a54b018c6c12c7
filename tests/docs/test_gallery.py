"""The gallery: each kind of policy is played with its memory, masks, opponents or other policies, and gets a card."""

import importlib
import json
import shlex
import shutil

import pytest
from PIL import Image

import xagents
from tests.docs.test_docs import ROOT
from xagents.cli.commands import find_command
from xagents.cli.dispatch import parse

RUN = {'final_episodes': 0, 'quiet': True, 'max_steps': 64}
TAG = 'pettingzoo:mpe2.simple_tag_v3'
POLICIES = {'hunter': 'ppo:adversary_*', 'prey': 'ppo:agent_0'}
PAGE = 'Above.\n\n<!-- benchmark gallery -->\n<!-- end of benchmark gallery -->\n\nBelow.\n'


@pytest.fixture
def gallery(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / 'docs')
    return importlib.import_module('make_gallery')


@pytest.fixture(scope='module')
def runs(tmp_path_factory, without_xla_in_module):
    """A run of each kind, two of a team, and one for which a policy ships."""
    folder = tmp_path_factory.mktemp('runs')
    small = {'net': [8], 'n_steps': 16, 'seed': 1}
    wrapper = ['examples.partial_observations:SelectElements', 'elements=[0,2]']
    agents = {
        'memory': xagents.make('ppo', 'CartPole-v1', memory=8, wrapper=wrapper, max_episode_steps=9, **small),
        'mask': xagents.make('ppo', 'Taxi-v4', n_envs=2, max_episode_steps=9, **small),
        'game': xagents.make('ppo', 'pettingzoo:classic.tictactoe_v3', **small),
        'team': xagents.make('team', TAG, policies=POLICIES, net=[8], seed=1),
        'shipped': xagents.make('ppo', 'CartPole-v1', **small),
    }
    for name, agent in agents.items():
        agent.fit(run_dir=folder / name, **RUN)
        agent.close()
    shutil.copytree(folder / 'team', folder / 'another-team', symlinks=True)
    return folder


def test_each_kind_of_run_gets_a_card(gallery, runs, tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, 'list_pretrained', lambda _: [])
    monkeypatch.setattr(gallery, 'prepare_process', lambda: None)
    monkeypatch.setattr(gallery, 'SHORTEST', 1)
    monkeypatch.setattr(gallery, 'LONGEST', 2)
    page, out = tmp_path / 'gallery.md', tmp_path / 'img'
    page.write_text(PAGE)
    words = ['--out', str(out), '--page', str(page), '--episodes', '4']
    assert gallery.main([*words, '--runs', str(runs)]) == 0
    text = page.read_text()
    known = json.loads((out / gallery.KNOWN).read_text())
    assert known.keys() == {
        *('ppo-with-memory-CartPole-v1', 'ppo-Taxi-v4', 'ppo-pettingzoo-classic.tictactoe_v3'),
        'team-pettingzoo-mpe2.simple_tag_v3',
    }
    for name, one in known.items():
        with Image.open(out / f'{name}.gif') as picture:
            assert picture.n_frames > 1 and one['score']['episodes'] == 4, name
        assert f'`{one["train"]}`' in text
    assert '**PPO with memory on CartPole-v1**: 9.0 ± 0.0 after' in text
    assert '**PPO with action masks on Taxi-v4**: ' in text and '**PPO as hunter, PPO as prey on ' in text
    score = known['team-pettingzoo-mpe2.simple_tag_v3']['score']
    assert f'(adversary_0 {score["reward/adversary_0"]:.1f}, adversary_1 ' in text
    score = known['ppo-pettingzoo-classic.tictactoe_v3']['score']
    assert f'{100 * score["success"]:.0f} % of the games won, ' in text
    # without runs, and with unchanged data, the cards stay and nothing is drawn
    monkeypatch.setattr(gallery, 'draw', None)
    assert gallery.main(words) == gallery.main([*words, '--runs', str(runs)]) == 0
    assert page.read_text() == text
    # a picture that was deleted loses its card
    (out / 'ppo-Taxi-v4.gif').unlink()
    assert gallery.main(words) == 0 and 'Taxi' not in page.read_text()


def test_the_commands_of_the_cards_are_admitted():
    known = json.loads((ROOT / 'img' / 'gallery' / 'pictures.json').read_text())
    kinds = {one.get('learner', one['agent']) for one in known.values()}
    assert {'sac', 'tqc', 'PPO with memory', 'PPO with action masks', 'PPO as hunter, PPO as prey'} <= kinds
    for name, one in known.items():
        picture = ROOT / 'img' / 'gallery' / f'{name}.gif'
        assert picture.stat().st_size <= 900_000, name
        for command in filter(None, (one['train'], one.get('play'))):
            program, word, agent_id, *rest = shlex.split(command)
            given = parse(find_command(word), agent_id, rest)[1]
            assert (program, agent_id) == ('xagents', one['agent'])
            assert one['env'] in (given.get('env'), given.get('pretrained'))
            assert word == 'play' or 'seed' in given
