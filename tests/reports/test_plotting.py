"""Learning curves: what is drawn is what the histories hold, and a wrong call says so in one line."""

import math
import os
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from xagents.logs.history import HistoryWriter
from xagents.logs.metrics import MetricsWriter
from xagents.reports import plotting
from xagents.reports.plotting import plot_history, save_plot
from xagents.reports.statistics import bootstrap_interval


@pytest.fixture(autouse=True)
def no_figure_left():
    yield
    plt.close('all')


def history(step, reward, seconds=None):
    reward = np.asarray(reward, float)
    return pd.DataFrame(
        {
            'mean_reward': reward,
            'best_reward': np.fmax.accumulate(reward),
            'episode_reward': reward + 1,
            'step': step,
            'time': np.asarray(step) / 2 if seconds is None else seconds,
        }
    )


def curve(ax, index=0):
    return ax.lines[index].get_xdata(), ax.lines[index].get_ydata()


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def band(ax):
    """Lower and upper edge of the shaded interval, by x."""
    vertices = ax.collections[0].get_paths()[0].vertices
    edges = {}
    for x, y in vertices:
        edges.setdefault(x, []).append(y)
    x = np.array(sorted(edges))
    return x, np.array([min(edges[value]) for value in x]), np.array([max(edges[value]) for value in x])


@pytest.fixture
def paths(tmp_path):
    made = []
    for name, slope in (('ppo', 2.0), ('a2c', 1.0)):
        made.append(str(tmp_path / f'{name}.parquet'))
        with HistoryWriter(made[-1]) as writer:
            writer.append([(slope * i, slope * i, 3.0 * i, 10 * i, 36.0 * i) for i in range(1, 11)])
    return made


def test_the_call_of_version_1(paths):
    ax = plot_history(
        paths, ['PPO', 'A2C'], 'CartPole-v1', plot='mean_reward', benchmark='time', history_interval=3, time_unit='hour'
    )
    x, y = curve(ax)
    np.testing.assert_allclose(x, np.array([1, 4, 7, 10]) * 36 / 3600)
    np.testing.assert_allclose(y, [2, 8, 14, 20])
    np.testing.assert_allclose(curve(ax, 1)[1], [1, 4, 7, 10])
    assert legend(ax) == ['PPO', 'A2C']
    assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == ('CartPole-v1', 'time in hours', 'mean reward')


def test_one_path_one_frame_or_several_of_both(paths):
    ax = plot_history(paths)
    np.testing.assert_array_equal(curve(ax)[0], 10 * np.arange(1, 11))
    assert (legend(ax), ax.get_xlabel(), ax.get_title()) == (['ppo', 'a2c'], 'step', '')
    frame = history([1, 2], [3, 4])
    assert legend(plot_history(paths[0])) == ['ppo']
    assert legend(plot_history(frame, 'mine')) == ['mine']
    np.testing.assert_array_equal(curve(plot_history(frame, plot='episode_reward'))[1], [4, 5])
    assert legend(plot_history([paths[0], frame])) == ['ppo', 'history 2']


def test_files_of_one_name_are_told_apart_and_not_averaged(tmp_path):
    same = []
    for folder in ('seed1', 'seed2'):
        (tmp_path / folder).mkdir()
        same.append(tmp_path / folder / 'history.parquet')
        history([1, 2], [3, 4]).to_parquet(same[-1])
    assert legend(plot_history(same)) == ['seed1/history', 'seed2/history']
    assert legend(plot_history([same[0], same[0]])) == ['seed1/history (1)', 'seed1/history (2)']


def test_smoothing_is_a_mean_over_episodes_before_rows_are_left_out():
    reward = np.random.default_rng(0).normal(size=30)
    _, y = curve(plot_history(history(np.arange(30), reward), smooth=4, history_interval=5))
    expected = [reward[max(0, i - 3) : i + 1].mean() for i in range(30)][::5]
    np.testing.assert_allclose(y, expected)


def test_what_is_not_finite_is_not_drawn():
    frame = history([1, 2, 3, 4], [math.nan, -math.inf, 5, 6])
    x, y = curve(plot_history(frame))
    np.testing.assert_array_equal(x, [3, 4])
    np.testing.assert_array_equal(y, [5, 6])


@pytest.mark.parametrize('shade', ['se', 'std', 'range'])
def test_one_label_is_a_mean_with_an_interval_over_the_common_range(shade):
    knots = [np.array([0, 10, 40]), np.array([5, 20, 30, 60]), np.array([2, 50])]
    values = [np.array([0, 5, 9]), np.array([1, 0, 7, 8]), np.array([3, 4])]
    frames = [history(x, y) for x, y in zip(knots, values, strict=True)]
    ax = plot_history([*frames, history([0, 1], [0, 1])], ['PPO'] * 3 + ['A2C'], shade=shade)
    x, mean = curve(ax)
    assert (x[0], x[-1]) == (5, 40)
    drawn = np.stack([np.interp(x, a, b) for a, b in zip(knots, values, strict=True)])
    np.testing.assert_allclose(mean, drawn.sum(axis=0) / 3)
    deviation = np.sqrt(((drawn - mean) ** 2).sum(axis=0) / 2)
    half = deviation / math.sqrt(3) if shade == 'se' else deviation
    low, high = (drawn.min(axis=0), drawn.max(axis=0)) if shade == 'range' else (mean - half, mean + half)
    at, lower, upper = band(ax)
    np.testing.assert_allclose(at, x)
    np.testing.assert_allclose(lower, low, atol=1e-9)
    np.testing.assert_allclose(upper, high, atol=1e-9)
    assert len(ax.lines) == 2 and len(ax.collections) == 1


def test_a_long_curve_keeps_its_extremes():
    reward = np.zeros(100_000)
    reward[[77, 50_123]] = 9, -9
    x, y = curve(plot_history(history(np.arange(100_000), reward)))
    assert len(x) <= plotting.MAX_POINTS + 2
    assert (y.max(), x[y.argmax()], y.min(), x[y.argmin()]) == (9, 77, -9, 50_123)
    assert (x[0], x[-1]) == (0, 99_999)


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        ({'plot': 'mean_rewards'}, ['plot', "'mean_rewards'", 'did you mean mean_reward']),
        ({'smooth': 2.5}, ['smooth', 'whole', '2.5']),
        ({'agents': ['PPO', 'A2C', 'DQN']}, ['agents', '3', '2']),
        ({'paths': 'missing.parquet'}, ['there is no file missing.parquet']),
        ({'paths': history([], [])}, ['no rows']),
        ({'paths': history([1], [math.nan])}, ['mean_reward', 'no number']),
        ({'paths': history([1], [1]).assign(name='x'), 'plot': 'name'}, ['name', 'numbers']),
        ({'paths': [history([1, 2], [1, 2]), history([3, 4], [1, 2])], 'agents': ['A', 'A']}, ["'A'", 'common range']),
    ],
)
def test_a_wrong_call_says_what_is_wrong_in_one_line(paths, arguments, words):
    with pytest.raises(ValueError) as error:
        plot_history(**{'paths': paths, **arguments})
    message = str(error.value)
    assert '\n' not in message and all(word in message for word in words), message
    assert plt.get_fignums() == []


@pytest.mark.parametrize(('name', 'magic'), [('p.png', b'\x89PNG'), ('p.SVG', b'<?xml'), ('p.pdf', b'%PDF')])
def test_a_plot_is_saved_in_the_format_of_its_ending(paths, tmp_path, name, magic):
    out = save_plot(paths, ['PPO', 'A2C'], 'time', tmp_path / name, env='CartPole-v1')
    assert out == tmp_path / name
    assert out.read_bytes().startswith(magic)
    assert sorted(os.listdir(tmp_path)) == sorted([name, 'ppo.parquet', 'a2c.parquet'])


def test_saving_needs_neither_pyplot_which_asks_for_a_display_nor_tensorflow(paths, tmp_path, monkeypatch):
    monkeypatch.delattr('matplotlib.pyplot')
    for name in ('matplotlib.pyplot', 'tensorflow'):
        monkeypatch.setitem(sys.modules, name, None)  # importing it is an error now
    save_plot(paths, out=tmp_path / 'p.png')
    assert (tmp_path / 'p.png').stat().st_size > 1000


# run folders, groups of them, and averages over runs


def make_run(folder, slope, agent='ppo', end=100, **options):
    """A run whose mean reward is `slope` times the step, and whose loss is a tenth of that below zero."""
    folder.mkdir(parents=True)
    lines = [f'agent: {agent}', *(f'{name}: {value}' for name, value in {'env': 'CartPole-v1', **options}.items())]
    (folder / 'config.yaml').write_text('\n'.join(lines) + '\n')
    steps = range(10, end + 1, 10)
    with HistoryWriter(folder / 'history.parquet') as writer:
        writer.append([(slope * step, slope * step, 0.0, step, step / 2) for step in steps])
    with MetricsWriter(folder / 'metrics.parquet') as writer:
        for step in steps[::2]:
            writer.write(step, {'loss/policy': -slope * step / 10, 'mean_reward': 0.0})
    return folder


def make_group(folder, settings):
    for name, slope in settings.items():
        make_run(folder / name, slope, **dict(pair.split('=') for pair in name.split(',')))
    (folder / 'group.yaml').write_text('agent: ppo\nseeds: [1, 2]\n')
    return folder


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draw with `save_plot`, and return the axes."""

    def draw(*arguments, **keywords):
        seen = []
        plot = plotting.plot_history
        with monkeypatch.context() as patch:
            patch.setattr(plotting, 'plot_history', lambda *a, **k: seen.append(plot(*a, **k)))
            save_plot(*arguments, out=tmp_path / 'p.png', **keywords)
        return seen[0]

    return draw


def test_runs_are_curves_under_their_agents(tmp_path, drawn):
    one, other = make_run(tmp_path / 'a', 2.0), make_run(tmp_path / 'b', 3.0, agent='a2c')
    ax = drawn(run_dirs=[one, other])
    assert (legend(ax), ax.get_title()) == (['ppo', 'a2c'], 'CartPole-v1')
    np.testing.assert_allclose(curve(ax, 1)[1], 3 * np.arange(10, 101, 10))
    assert legend(drawn(run_dirs=[tmp_path])) == ['ppo', 'a2c']


def test_a_group_is_a_curve_a_setting_with_both_means_and_an_interval(tmp_path, drawn):
    slopes = {'lr=0.1,seed=1': 1.0, 'lr=0.1,seed=2': 2.0, 'lr=0.1,seed=3': 9.0, 'lr=0.2,seed=1': 5.0}
    ax = drawn(run_dirs=[make_group(tmp_path / 'g', slopes)])
    assert legend(ax)[:2] == ['ppo, lr=0.1 (3 runs)', 'ppo, lr=0.2']
    assert legend(ax)[2:] == ['interquartile mean', 'mean', '95 % confidence interval']
    (mean,) = [line for line in ax.lines if line.get_linestyle() == '--' and len(line.get_xdata())]
    (iqm,) = [line for line in ax.lines if line.get_label() == legend(ax)[0]]
    x = mean.get_xdata()
    np.testing.assert_allclose(mean.get_ydata(), 4 * x)
    np.testing.assert_allclose(iqm.get_ydata(), (1 / 6 + 2 * 2 / 3 + 9 / 6) * x)
    at, low, high = band(ax)
    expected = bootstrap_interval(np.outer([1.0, 2.0, 9.0], at))
    np.testing.assert_allclose([low, high], expected)


def test_an_interval_of_the_mean_is_that_of_the_mean():
    frames = [history([0, 10], [0, slope]) for slope in (1.0, 2.0, 30.0, 4.0, 5.0)]
    x, low, high = band(plot_history(frames, ['PPO'] * 5, shade='ci'))
    expected = bootstrap_interval(np.outer([0.1, 0.2, 3.0, 0.4, 0.5], x), 'mean')
    np.testing.assert_allclose([low, high], expected, atol=1e-12)


def test_runs_of_a_group_that_have_only_begun_are_left_out(tmp_path, drawn):
    group = make_group(tmp_path / 'g', {'seed=1': 1.0, 'seed=2': 3.0})
    make_run(group / 'seed=3', 5.0, end=10, seed=3)
    (make_run(group / 'seed=4', 5.0, seed=4) / 'history.parquet').unlink()
    ax = drawn(run_dirs=[group], average='mean')
    assert legend(ax) == ['ppo (mean of 2 ± standard error)'] and curve(ax)[0][-1] == 100


@pytest.mark.parametrize(('by', 'factor'), [('step', 1.0), ('time', 0.5)])
def test_a_metric_of_runs_has_the_clock_of_their_histories(tmp_path, drawn, by, factor):
    ax = drawn(run_dirs=[make_run(tmp_path / 'a', 2.0)], plot='loss/policy', by=by)
    x, y = curve(ax)
    np.testing.assert_allclose(x, factor * np.arange(10, 101, 20))
    np.testing.assert_allclose(y, -2 * np.arange(10, 101, 20) / 10)
    assert ax.get_ylabel() == 'loss/policy'


@pytest.mark.parametrize(
    ('keywords', 'words'),
    [
        ({'out': 'p.gif'}, ['out', 'p.gif', '.png']),
        ({'out': 'missing/p.png'}, ['out', 'missing']),
        ({'by': 'stpe'}, ['benchmark', 'did you mean step']),
        ({'plot': 'loss/policy'}, ['column', 'loss/policy', 'ppo.parquet']),
        ({'paths': [], 'plot': 'loss/polcy'}, ['column', 'loss/polcy', 'did you mean loss/policy']),
        ({'run_dirs': ['nowhere']}, ['there is no directory nowhere']),
        ({'run_dirs': ['empty']}, ['empty', 'no run']),
        ({'average': 'iqm', 'shade': 'se'}, ['shade', 'se', 'ci, range or none']),
    ],
)
def test_a_wrong_command_is_refused_before_anything_is_written(tmp_path, paths, monkeypatch, keywords, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'empty').mkdir()
    run_dirs = [make_run(tmp_path / 'runs' / 'a', 2.0)]
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(ValueError) as error:
        save_plot(**{'paths': [os.path.basename(path) for path in paths], 'run_dirs': run_dirs, **keywords})
    message = str(error.value)
    assert '\n' not in message and all(word in message for word in words), message
    assert sorted(os.listdir(tmp_path)) == before


def test_evaluations_of_a_run_without_episodes_are_drawn_at_their_steps(tmp_path, drawn):
    folder = make_run(tmp_path / 'a', 1.0)
    HistoryWriter(folder / 'history.parquet').close()
    with MetricsWriter(folder / 'metrics.parquet') as writer:
        for step, mean in ((10, None), (20, 5.0), (30, None), (40, 7.0), (50, None)):
            # between evaluations the mean keeps the value of the last one
            writer.write(step, {'mean_reward': 5.0 if step < 40 else 7.0, **({'evaluate/mean': mean} if mean else {})})
    x, y = curve(drawn(run_dirs=[folder]))
    assert (x[[0, -1]].tolist(), y[[0, -1]].tolist()) == ([20, 40], [5, 7]) and len(set(np.diff(y).round(9))) == 1
