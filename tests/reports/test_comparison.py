"""`xagents compare`: groups, environments, normalisation, verdicts, page, JSON, picture, and wrong input."""

import itertools
import json
import re
import shlex

import numpy as np
import pytest

from tests.commands import execute
from xagents.factory.presets import list_presets
from xagents.logs.history import HistoryWriter
from xagents.logs.metrics import MetricsWriter
from xagents.registry.agents import BUILTIN_AGENTS
from xagents.reports.comparison import compare
from xagents.reports.comparison_page import comparison_page, verdict_sentence
from xagents.reports.reference_scores import find_bounds, known_bounds

CARTPOLE, ACROBOT = 'CartPole-v1', 'Acrobot-v1'
SIGNATURES = {'png': b'\x89PNG', 'svg': b'<?xml', 'pdf': b'%PDF'}


def make_run(folder, mean, *, agent='ppo', env=CARTPOLE, seed=1, state='finished', steps=1000, **options):
    """A run whose mean reward rises to `mean`; episodes at the end have `mean` + 1."""
    folder.mkdir(parents=True)
    config = {'agent': agent, 'env': env, 'seed': seed, **options}
    lines = [f'{name}: {json.dumps(value)}\n' for name, value in config.items() if value is not None]
    (folder / 'config.yaml').write_text(''.join(lines))
    status = {'state': state, 'why': 'steps', 'steps': steps, 'games': 20, 'seconds': 1.0, 'mean_reward': mean}
    status |= {'best_reward': mean + 5, 'pid': 1, 'host': 'x', 'updated': '2020-01-01T00:00:00'}
    (folder / 'status.json').write_text(json.dumps(status))
    with HistoryWriter(folder / 'history.parquet') as writer:
        writer.append([(mean * i / 20, mean, mean + 1, i * steps // 20, float(i)) for i in range(1, 21)])
    return folder


def make_seeds(folder, means, **options):
    for seed, mean in enumerate(means, 1):
        make_run(folder / f'seed={seed}', mean, seed=seed, **options)
    (folder / 'group.yaml').write_text('agent: ppo\n')
    return folder


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Two groups: `good` is better than `bad` in both environments."""
    monkeypatch.chdir(tmp_path)
    for name, cartpole, acrobot in (
        ('good', [400, 420, 450, 410], [-80, -85, -90, -82]),
        ('bad', [100, 150, 90, 120], [-300, -250, -280, -400]),
    ):
        make_seeds(tmp_path / name / 'cartpole', cartpole)
        make_seeds(tmp_path / name / 'acrobot', acrobot, env=ACROBOT, lr=0.1)  # settings of environments may differ
    return tmp_path


def run_json(*words):
    code, out, err = execute('compare', *words, '--json')
    assert (code, err) == (0, ''), err
    return json.loads(out)


# ------------------------------------------------------------------------------------------------------------- results


def test_scores_are_normalised_and_aggregated(root):
    found = run_json('good', 'bad', '--resamples', '500', '--random', f'{CARTPOLE}=0', '--reference', f'{CARTPOLE}=500')
    assert found['environments'][CARTPOLE] == {'random': 0, 'reference': 500}
    assert found['environments'][ACROBOT] == known_bounds(ACROBOT)._asdict()
    assert found['groups']['good']['raw_scores'] == {ACROBOT: [-80, -85, -90, -82], CARTPOLE: [400, 420, 450, 410]}
    low, high = known_bounds(ACROBOT)
    means = [(np.mean([-80, -85, -90, -82]) - low) / (high - low), np.mean([400, 420, 450, 410]) / 500]
    assert found['groups']['good']['mean']['value'] == pytest.approx(np.mean(means))
    assert found['groups']['good']['gap']['value'] == pytest.approx(1 - np.mean(means))
    (pair,) = found['improvements']
    assert (pair['group'], pair['versus'], pair['probability']['value']) == ('good', 'bad', 1)
    assert pair['verdict'] == 'better' and found['verdicts'] == [] and found['notes'] == []
    assert found['curve_axis']['name'] == 'step' and found['curve_axis']['values'][-1] == 1000
    # the end of the curve is the mean of the end
    curve, iqm = found['groups']['good']['curve'], found['groups']['good']['iqm']
    assert (curve['values'][-1], curve['low'][-1]) == pytest.approx((iqm['value'], iqm['low']), abs=1e-6)
    assert found == run_json(
        'good', 'bad', '--resamples', '500', '--random', f'{CARTPOLE}=0', '--reference', f'{CARTPOLE}=500'
    )


def test_the_page_has_a_verdict_for_each_other_group(root):
    make_seeds(root / 'same' / 'cartpole', [399, 421, 449, 411])
    make_seeds(root / 'same' / 'acrobot', [-81, -84, -91, -83], env=ACROBOT)
    code, page, _ = execute('compare', 'good', 'bad', 'same', '--versus', './good', '--labels', 'a', 'b', 'c')
    text = ' '.join(page.split())
    assert code == 0
    assert re.search(r'b is worse than a on these 2 environments: IQM 0\.\d\d vs 0\.\d\d, difference -0\.\d\d \[', text)
    assert re.search(r'Whether c is \w+ than a on these 2 environments cannot be said \(chance alone can give', text)
    assert re.search(r'P\(b > a\) = 0\.00 \[0\.00, 0\.00\]; permutation test p = (< )?0\.00\d\.', text)
    assert 'P(a > b)' not in text
    lines = page.splitlines()
    (row,) = [line for line in lines if line.startswith('Acrobot-v1')]
    low, high = known_bounds(ACROBOT)
    assert row.split() == [ACROBOT, 'a', '4', '-84.2', '-90.0', '-80.0', f'{low:.1f}', f'{high:.1f}']
    statistics = [line.split('  ')[0] for line in lines if '[' in line and not line.startswith((' ', 'P(', 'b ', 'W'))]
    assert statistics[:4] == ['IQM', 'Median', 'Mean', 'Optimality gap']


def test_pairs_without_versus(root):
    make_seeds(root / 'third' / 'cartpole', [1, 2])
    page = comparison_page(compare(['good', 'bad', 'third'], resamples=100))
    pairs = re.findall(r'^P\((\w+) > (\w+)\) = ', page, re.MULTILINE)
    assert pairs == [('good', 'bad'), ('good', 'third'), ('bad', 'third')]
    assert 'Acrobot-v1 is left out: third has no run of it' in ' '.join(page.split())


@pytest.mark.parametrize('ending', SIGNATURES)
def test_the_picture_has_the_format_of_its_name(root, ending):
    code, out, _ = execute('compare', 'good', 'bad', '--resamples', '50', '--out', f'c.{ending}')
    assert code == 0 and out.splitlines()[-1] == f'Picture saved to c.{ending}'
    assert (root / f'c.{ending}').read_bytes().startswith(SIGNATURES[ending])
    if ending == 'svg':
        text = (root / 'c.svg').read_text()
        titles = ('IQM', 'Optimality gap', 'Performance profile', 'Probability of improvement', 'IQM over training')
        assert all(f'<!-- {title} -->' in text for title in titles)


# -------------------------------------------------------------------------------------------------------------- scores


def test_kinds_of_scores(root):
    run = make_run(root / 'one' / 'a', 50.0, eval_frequency=100)
    with MetricsWriter(run / 'metrics.parquet') as writer:
        for step, mean in ((100, 10.0), (500, 70.0), (1000, 60.0)):
            writer.write(step, {'evaluate/mean': mean})
    make_run(root / 'two' / 'a', 40.0)
    expected = {'final': 50.0, 'best': 55.0, 'training': 51.0}
    for kind, score in expected.items():
        found = compare(['one', 'two'], score=kind, resamples=10)
        assert found.groups[0].group.runs[CARTPOLE][0].score == score
        mixed = any('Some runs have evaluations' in note for note in found.notes)
        assert mixed == (kind != 'training')
    with pytest.raises(ValueError, match=r'^two has no run with a score: a left out \(has no evaluation, which'):
        compare(['one', 'two'], score='evaluation', resamples=10)
    make_run(root / 'three' / 'a', 1.0, eval_frequency=100)
    with MetricsWriter(root / 'three' / 'a' / 'metrics.parquet') as writer:
        writer.write(100, {'evaluate/mean': 1.0})
        writer.write(1000, {'evaluate/mean': 2.0})
    found = compare(['one', 'three'], score='evaluation', resamples=10)
    assert [one.group.runs[CARTPOLE][0].score for one in found.groups] == [60.0, 2.0]
    bounds = known_bounds(CARTPOLE)
    np.testing.assert_allclose(found.groups[0].curve.values[-1], bounds.normalise(np.array(60.0)))


def test_runs_without_an_end_or_a_file_are_named_and_left_out(root):
    make_run(root / 'good' / 'cartpole' / 'seed=7', 1.0, seed=7, state='interrupted')
    make_run(root / 'good' / 'cartpole' / 'seed=8', float('nan'), seed=8)
    broken = make_run(root / 'good' / 'cartpole' / 'seed=9', 1.0, seed=9)
    (broken / 'config.yaml').write_text('[')
    found = compare(['good', 'bad'], resamples=10)
    assert [run.seed for run in found.groups[0].group.runs[CARTPOLE]] == [1, 2, 3, 4]
    notes = '\n'.join(found.notes)
    assert 'good: seed=7 left out (interrupted)' in notes
    assert 'good: seed=8 left out (has no mean reward)' in notes
    assert re.search(r'good: seed=9 left out \(.*config\.yaml', notes)


def test_one_seed_has_no_interval(root):
    for name, mean in (('x', 300), ('y', 200)):
        make_run(root / name, mean)
    code, page, _ = execute('compare', 'x', 'y', '--versus', 'y', '--out', 'c.png')
    text = ' '.join(page.split())
    assert code == 0 and '[' not in text.partition('Brackets')[0].replace('Optimality', '')
    assert 'x has 1 run per environment, so it has no confidence interval: train more seeds' in text
    assert 'Whether x is better than y on CartPole-v1 cannot be said (too few runs: even if all runs' in text
    assert run_json('x', 'y')['groups']['x']['iqm']['low'] is None


def test_limits_of_a_comparison_are_notes(root):
    make_run(root / 'third' / 'a', 100, seed=5, steps=5000)
    make_run(root / 'third' / 'b', 110, seed=5, steps=5000)
    make_run(root / 'third' / 'c', -100, env=ACROBOT)
    notes = '\n'.join(compare(['good', 'third'], resamples=10).notes)
    assert 'CartPole-v1: the groups trained for different numbers of steps: good 1000, third 5000' in notes
    assert 'third has 1 run of Acrobot-v1, so it has no confidence interval: train more seeds' in notes
    assert 'third: several runs of CartPole-v1 have the seed 5' in notes


# -------------------------------------------------------------------------------------------------------------- groups


def test_a_grid_is_one_group_for_each_setting(root):
    for lr, seed in itertools.product((0.001, 0.01), (1, 2)):
        make_run(root / 'grid' / f'lr={lr},seed={seed}', 100 * lr + seed, seed=seed, lr=lr)
    (root / 'grid' / 'group.yaml').write_text('agent: ppo\n')
    found = compare(['grid'], resamples=10)
    assert [one.group.label for one in found.groups] == ['grid, lr=0.001', 'grid, lr=0.01']
    assert [len(one.scores[0]) for one in found.groups] == [2, 2]
    assert compare(['grid'], resamples=10, versus='grid, lr=0.01').versus == 'grid, lr=0.01'


def test_agents_in_one_folder_are_groups(root):
    for agent, seed in itertools.product(('ppo', 'a2c'), (1, 2)):
        make_run(root / 'both' / f'{agent}{seed}', 100 + seed, agent=agent, seed=seed, n_steps=len(agent))
        make_run(root / 'both' / f'{agent}{seed}b', -100, agent=agent, seed=seed, env=ACROBOT, n_steps=7)
    assert [one.group.label for one in compare(['both'], resamples=10).groups] == ['both, a2c', 'both, ppo']


def test_arguments_of_an_environment_make_another_environment(root):
    for name in 'xy':
        make_seeds(root / name, [1, 2], env='My-v0', env_kwargs={'wind': True})
    found = compare(['x', 'y'], resamples=10)
    assert found.envs == ['My-v0 wind=on'] and found.bounds is None
    assert "--random 'My-v0 wind=on=NUMBER' --reference" in found.notes[0]
    pairs = {'random': ['My-v0 wind=on=0'], 'reference': ['My-v0 wind=on=4']}
    assert compare(['x', 'y'], resamples=10, **pairs).groups[0].mean.value == pytest.approx(1.5 / 4)


def test_environments_of_different_lengths_share_an_axis_of_shares(root):
    for name in ('x', 'y'):
        make_seeds(root / name / 'c', [100, 200], steps=1000)
        make_seeds(root / name / 'a', [-100, -200], env=ACROBOT, steps=4000)
    found = compare(['x', 'y'], resamples=10)
    assert found.curve_label == 'share of training' and found.curve_x[-1] == 1


# ------------------------------------------------------------------------------------------------------- normalisation


def test_every_preset_has_known_scores():
    presets = [preset for agent_id in BUILTIN_AGENTS for preset in list_presets(agent_id)]
    for env in {env for preset in presets for env in (preset.games or [preset.env])}:
        bounds = known_bounds(env)
        assert bounds is not None and bounds.random < bounds.reference, env


def test_known_scores():
    assert known_bounds('ALE/Pong-v5') == known_bounds('PongNoFrameskip-v4') == (-20.7, 14.6)
    assert known_bounds('gymnasium.envs:CartPole-v1') == known_bounds(CARTPOLE)
    assert known_bounds('Nothing-v1') is None
    for env in (CARTPOLE, ACROBOT, 'Pendulum-v1', 'LunarLander-v3', 'HalfCheetah-v5', 'ALE/Qbert-v5'):
        bounds = known_bounds(env)
        np.testing.assert_allclose(bounds.normalise(np.array(bounds)), [0, 1])


@pytest.mark.parametrize(
    ('envs', 'given', 'message'),
    [
        (['A', CARTPOLE], {}, 'random: no score of A is known, expected A=NUMBER here and --reference, or --raw'),
        (['A', CARTPOLE], {'random': ['A=0']}, 'reference: no score of A is known, expected A=NUMBER here, or --raw'),
        (['A'], {'reference': ['A=1']}, 'random: no score of A is known, expected A=NUMBER here, or --raw'),
        (['A'], {'random': ['A']}, 'random: got A, expected ENV=NUMBER, such as A=100'),
        (['A'], {'random': ['A=nan']}, 'random: got A=nan, expected ENV=NUMBER, such as A=100'),
        (['A'], {'random': ['A=1', 'A=2']}, 'random: got A twice, expected each environment once'),
        ([CARTPOLE], {'reference': [f'{CARTPOLE}=1']}, 'reference: got 1 as the reference score of CartPole-v1, exp'),
        ([CARTPOLE], {'random': [f'{CARTPOLE}=900']}, 'random: got 500 as the reference score of CartPole-v1, expec'),
        (
            [CARTPOLE],
            {'random': ['CartPole=1']},
            'random: got the environment CartPole, expected one of CartPole-v1 (d',
        ),
    ],
)
def test_scores_that_cannot_normalise_are_refused(envs, given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        find_bounds(envs, **given)
    assert find_bounds(['A']) is None
    assert find_bounds(['A'], ['A=-1'], ['A=1']) == {'A': (-1, 1)}


def test_raw_scores_have_no_optimality_gap(root):
    found = compare(['good', 'bad'], raw=True, resamples=10)
    assert found.bounds is None and found.groups[0].gap is None
    assert found.groups[0].mean.value == pytest.approx(np.mean([-84.25, 420]))
    assert 'Optimality' not in comparison_page(found) and 'not normalised' in comparison_page(found)


# -------------------------------------------------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ('line', 'message'),
    [
        ('god bad', 'there is no directory god (did you mean good?)'),
        ('good empty', 'empty contains no run, expected the --run-dir of a training run'),
        ('good good/../other/good', '--labels: several groups have the label good, expected different labels'),
        ('good bad --labels a a', '--labels: several groups have the label a, expected different labels'),
        ('good bad --labels a', '--labels: got 1, expected 2, one for each group'),
        ('good good/cartpole', 'good and good/cartpole contain the same run, good/cartpole/seed=1, expected different'),
        ('good', 'got one group, good, expected at least two'),
        ('--versus x', 'got no group, expected directories of groups of runs'),
        ('good bad --versus god', '--versus: got god, expected one of good, bad (did you mean good?)'),
        ('good bad --reference CartPole-v0=1', '--reference: got the environment CartPole-v0, expected one of Acrobot'),
        ('good bad --reference CartPole-v1=1 --raw', '--reference: got CartPole-v1=1 with --raw, which does not norm'),
        ('good bad --out c.pgn', '--out: got c.pgn, expected a path that ends in .png, .svg or .pdf (did you mean png'),
        ('good bad --out no/c.png', '--out: there is no directory'),
        ('good bad --score finl', '--score: got finl, expected one of final, best, training, evaluation (did you mean'),
        ('good bad --resamples 0', '--resamples: got 0, expected a whole number at least 1'),
        ('good pong', 'the groups have no environment in common: good has Acrobot-v1, CartPole-v1; pong has ALE/Pong'),
        ('good stopped', 'stopped has no run with a score: a left out (interrupted)'),
    ],
)
def test_wrong_input_is_one_line_and_nothing_is_written(root, line, message):
    (root / 'empty').mkdir()
    make_seeds(root / 'other' / 'good', [1, 2])
    make_run(root / 'pong' / 'a', 1.0, env='ALE/Pong-v5')
    make_run(root / 'stopped' / 'a', 1.0, state='interrupted')
    before = sorted(root.rglob('*'))
    words = shlex.split(line)
    out = [] if '--out' in words else ['--out', 'c.png']
    code, stdout, err = execute('compare', *words, *out)
    (shown,) = err.splitlines()
    assert (code, stdout) == (2, '') and shown.startswith(f'xagents compare: {message}'), shown
    assert sorted(root.rglob('*')) == before


def test_sentences_about_few_runs(root):
    make_seeds(root / 'x', [300, 310, 320])
    make_seeds(root / 'y', [100, 110, 120])
    found = compare(['x', 'y'], versus='y', resamples=400)
    (one,) = found.improvements
    assert one.difference.low > 0 and one.least_p_value == pytest.approx(0.1)
    assert 'cannot be said (too few runs: even if all runs of one group were better, p would be 0.10)' in (
        verdict_sentence(found, one)
    )


def test_unequal_groups_have_exact_p_values(root):
    make_seeds(root / 'x', [300, 310])
    make_seeds(root / 'y', [100, 110, 120])
    make_seeds(root / 'z', [100, 110, 120, 130, 140])
    few, enough = (compare(['x', other], versus=other, resamples=400).improvements[0] for other in 'yz')
    assert few.p_value == few.least_p_value == pytest.approx(1 / 10)
    assert enough.p_value == enough.least_p_value == pytest.approx(1 / 21) and enough.verdict == 'better'


def test_an_environment_with_one_run_leaves_no_interval(root):
    envs = [CARTPOLE, *(f'E{number}' for number in range(5))]
    for name, score in (('x', 300), ('y', 100)):
        make_seeds(root / name / 'two', [score, score + 1])
        for env in envs[1:]:
            make_run(root / name / env, score, env=env)
    found = compare(['x', 'y'], raw=True, versus='y', resamples=400)
    assert all(np.isnan(one.iqm.low) and np.isnan(one.curve.low).all() for one in found.groups)
    assert 'x has 1 run of E0, E1, E2, E3, E4, so it has no confidence interval' in '\n'.join(found.notes)
    (one,) = found.improvements
    assert one.p_value <= 0.05 and one.verdict == 'unknown' and '[' not in comparison_page(found)
    assert 'cannot be said (too few runs: a group has 1 run of an environment' in verdict_sentence(found, one)


def test_a_path_in_python_is_a_list_of_one(root):
    for lr, seed in itertools.product((0.001, 0.01), (1, 2)):
        make_run(root / 'grid' / f'lr={lr},seed={seed}', 100 * lr + seed, seed=seed, lr=lr)
    for path in ('grid', root / 'grid'):
        labels = [one.group.label for one in compare(path, labels='one', resamples=10).groups]
        assert labels == ['one, lr=0.001', 'one, lr=0.01']
    with pytest.raises(ValueError, match=r'^got one group, good, expected at least two$'):
        compare('good')


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'score': 'finl'}, 'score: got finl, expected one of final, best, training, evaluation (did you mean final?)'),
        ({'resamples': 0}, 'resamples: got 0, expected a whole number at least 1'),
        ({'resamples': 2.5}, 'resamples: got 2.5, expected a whole number at least 1'),
        ({'labels': ['a']}, 'labels: got 1, expected 2, one for each group'),
        ({'labels': 'ab'}, 'labels: got 1, expected 2, one for each group'),
        ({'versus': 'god'}, 'versus: got god, expected one of good, bad (did you mean good?)'),
        ({'raw': 'yes!'}, "raw: got 'yes!', expected true or false"),
        ({'random': 'x'}, 'random: got x, expected ENV=NUMBER'),
        ({'raw': True, 'reference': ['CartPole-v1=1']}, 'reference: got CartPole-v1=1 with --raw, which does not'),
        ({'folders': []}, 'got no group, expected directories of groups of runs'),
    ],
)
def test_wrong_input_in_python_is_the_error_of_the_command(root, options, message):
    with pytest.raises(ValueError) as error:
        compare(**{'folders': ['good', 'bad'], **options})
    assert str(error.value).startswith(message) and '\n' not in str(error.value)
