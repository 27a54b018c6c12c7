"""The page of `xagents report`: right numbers, every text escaped, no request, readable in both themes and widths."""

import contextlib
import json
import os
import re
import shutil
import socket
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from tests.browser import needs_browser
from tests.commands import execute
from xagents.cli.report import record_best
from xagents.doctor.finding import Finding
from xagents.logs.history import HistoryWriter
from xagents.logs.metrics import MetricsWriter
from xagents.options.errors import OptionError
from xagents.reports import report_page
from xagents.reports.report_data import (
    MAX_EVALUATIONS,
    RunReport,
    best_runs,
    compare_options,
    read_groups,
    run_versions,
)
from xagents.reports.report_page import Recording, save_report
from xagents.reports.runs_page import RunSummary, runs_page
from xagents.reports.svg_charts import CURVE_COLOURS, curve_chart
from xagents.reports.trials import StudyTrials, has_trials, read_trials

HOSTILE = '"><script>alert(1)<!-- <img src=x onerror=alert(2)> {{ 7 * 7 }} $\\frac$ _a'
VOID = {'meta', 'link', 'br', 'img', 'input', 'hr'}


class Page(HTMLParser):
    """The elements of a page, which must be balanced, and its texts."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding='utf-8')
        self.elements, self.open, self.texts = [], [], []
        self.feed(self.source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), [*self.open]))
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), [*self.open]))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return ' '.join(' '.join(self.texts).split())

    def all(self, tag):
        return [attributes for name, attributes, _ in self.elements if name == tag]

    def numbers(self, attribute):
        """The numbers of each row that has an attribute, by the value of the attribute and the name of the cell."""
        rows = {}
        for tag, attributes, parents in self.elements:
            if tag == 'data':
                row = next((of for name, of in parents if name == 'tr'), {})
                cell = next((of for name, of in reversed(parents) if name == 'td'), {})
                if attribute in row:
                    cells = rows.setdefault(row[attribute], {})
                    cells.setdefault(cell.get('data-name') or cell.get('data-phase'), []).append(
                        float(attributes['value'])
                    )
        return rows


def make_run(folder, scores=(10.0, 30.0, 20.0), *, status=None, metrics=True, agent='ppo', **options):
    """A run directory with a history and metrics, without a checkpoint."""
    folder.mkdir(parents=True)
    given = {'env': 'CartPole-v1', 'seed': 1, 'n-envs': 4, 'lr': 0.0007, 'run-dir': str(folder), **options}
    about = {'command': f'xagents train {agent}', 'started': '2026-11-22T04:31:00+00:00'}
    about['versions'] = {'xagents': '2.0', 'numpy': '2.4.6'}
    lines = [f'agent: {json.dumps(agent)}', *(f'{name}: {json.dumps(value)}' for name, value in given.items())]
    (folder / 'config.yaml').write_text('\n'.join([*lines, f'about: {json.dumps(about)}']) + '\n')
    known = {
        **{'state': 'finished', 'why': 'steps', 'steps': 100 * len(scores), 'games': len(scores), 'seconds': 4.0},
        **{'mean_reward': scores[-1], 'best_reward': max(scores), 'pid': os.getpid(), 'host': socket.gethostname()},
        'updated': '2026-11-22T04:31:00',
    }
    (folder / 'status.json').write_text(json.dumps({**known, **(status or {})}))
    history = HistoryWriter(folder / 'history.parquet')
    best = np.maximum.accumulate(scores)
    history.append([(s, best[i], s, 100 * i + 100, i + 1.0) for i, s in enumerate(scores)])
    history.close()
    if metrics:
        writer = MetricsWriter(folder / 'metrics.parquet')
        for i, score in enumerate(scores):
            phases = {'seconds/env': 0.3, 'seconds/act': 0.1, 'seconds/learn': 100.0 if i == 0 else 0.6}
            evaluation = {'evaluate/mean': 2 * score, 'evaluate/std': 1.5, 'evaluate/length': 50.0}
            writer.write(100 * i + 100, {**phases, **evaluation, 'steps_per_second': 1000.0 + i})
        writer.close()
    return folder


def make_seeds(folder, n=3, **options):
    for seed in range(1, n + 1):
        make_run(folder / f'seed={seed}', (10.0 * seed, 30.0 * seed, 20.0 * seed), seed=seed, **options)
    (folder / 'group.yaml').write_text(f'agent: ppo\nenv: CartPole-v1\nseed: {list(range(1, n + 1))}\n')
    return folder


def make_grid(folder):
    for lr in (0.001, 0.01):
        for seed in (1, 2):
            make_run(folder / f'lr={lr},seed={seed}', (seed, 1000 * lr + seed), lr=lr, seed=seed)
    (folder / 'group.yaml').write_text('agent: ppo\nenv: CartPole-v1\nlr: [0.001, 0.01]\nseed: [1, 2]\n')
    return folder


def make_population(folder, name='lr'):
    scores = {0: 0.0, 1: 5.0, 2: 10.0}
    members = [{'settings': {name: 0.001 * (i + 1)}, 'parent': i, 'score': score} for i, score in scores.items()]
    (folder / 'rounds').mkdir(parents=True)
    free = {'seed': 1, 'schedule_steps': 200, 'exploit_steps': 100}
    (folder / 'population.json').write_text(json.dumps({'agent': 'ppo', 'env': 'CartPole-v1', 'free': free}))
    for number in (1, 2):
        (folder / 'rounds' / f'{number:04}.json').write_text(json.dumps({'members': members}))
    for index in range(3):
        make_run(
            folder / 'round-0002' / f'member-{index:02}', (1.0, 5.0 * index + 1), lr=0.001 * (index + 1), seed=index
        )
    return folder


def make_trials(folder, name='lr'):
    folder.mkdir(parents=True)
    states = ['complete', 'complete', 'pruned', 'failed']
    values = [1.5, 7.25, 3.0, None]
    frame = pd.DataFrame({'number': range(4), 'state': states, 'value': values, f'params_{name}': [0.1, 0.2, 0.3, 0.4]})
    frame.assign(duration=2.0).to_parquet(folder / 'trials.parquet')
    (folder / 'best.yaml').write_text('agent: ppo\nenv: CartPole-v1\nlr: 0.2\n')
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def page_of(*folders, **options):
    return Page(save_report(folders, 'report.html', **options))


# numbers


def records_of(folder):
    return [json.loads(line) for line in runs_page([folder], as_json=True).splitlines()]


def test_numbers_are_those_of_the_list_of_runs(here):
    make_seeds(here / 'seeds')
    shown, records = page_of('seeds').numbers('data-run'), records_of('seeds')
    runs = [record for record in records if record['run']]
    assert len(runs) == len(shown) == 3
    for record in runs:
        names = ('steps', 'games', 'mean_reward', 'best_reward')
        assert {name: [record[name]] for name in names} == shown[record['run']]


def test_a_setting_has_the_statistics_of_the_list_of_runs(here):
    make_grid(here / 'grid')
    shown = page_of('grid').numbers('data-setting')
    statistics = [record for record in records_of('grid') if not record['run']]
    assert [*shown] == ['lr=0.001', 'lr=0.01'] and len(statistics) == 4
    for record in statistics:
        cells = shown[record['setting']]
        assert cells[record['reward']] == [record['mean']]
        assert cells[f'{record["reward"]}_iqm'] == [record['iqm'], record['low'], record['high']]


def test_evaluations_are_those_of_the_metrics(here):
    make_seeds(here / 'seeds')
    page = page_of('seeds')
    shown = page.numbers('data-evaluated')
    assert shown['seeds/seed=2']['best'] == [120.0, 1.5, 50.0] and shown['seeds/seed=2']['last'] == [80.0, 1.5, 50.0]
    assert 'all seeds: IQM' in page.text and 'Evaluations of seeds/seed=1' in page.text


def test_an_asynchronous_evaluation_has_the_step_of_its_weights(here):
    folder = make_run(here / 'a', metrics=False)
    writer = MetricsWriter(folder / 'metrics.parquet')
    writer.write(900, {'evaluate/mean': 5.0, 'evaluate/steps': 300.0})
    writer.close()
    (group,) = read_groups(['a'])
    assert group.runs[0].evaluations[0].steps == 300


def test_long_lists_of_evaluations_keep_the_first_the_best_and_the_last(here):
    scores = [float(i % 7) for i in range(300)]
    scores[123] = 99.0
    make_run(here / 'a', scores)
    shown = read_groups(['a'])[0].runs[0].shown_evaluations
    assert len(shown) <= MAX_EVALUATIONS
    assert shown[0].steps == 100 and shown[-1].steps == 30_000 and max(one.mean for one in shown) == 198.0


def test_shares_of_time_leave_out_the_compilation(here):
    make_run(here / 'a')
    page = page_of('a')
    shares = page.numbers('data-time')['a']
    assert {name: shares[name] for name in ('env', 'act', 'learn')} == {
        'env': [pytest.approx(30)],
        'act': [pytest.approx(10)],
        'learn': [pytest.approx(60)],
    }
    assert shares[None] == [75.0, 1001.0], 'steps per second of the whole run and their median'
    assert 'waiting' not in page.text


def test_settings_that_differ(here):
    make_grid(here / 'grid')
    (group,) = read_groups(['grid'])
    table = compare_options(group.settings)
    assert table.rows == [('--lr', ['0.001', '0.01'])] and [*table.columns] == ['lr=0.001', 'lr=0.01']


def test_a_single_run_is_compared_with_the_defaults(here):
    make_run(here / 'a', lr=0.5, gamma=0.99)
    table = compare_options(read_groups(['a'])[0].settings)
    assert table.rows == [('--n-envs', ['4', '1']), ('--lr', ['0.5', '0.0007'])]
    make_run(here / 'b', agent='mine', lr=0.5)
    assert 'mine' in compare_options(read_groups(['b'])[0].settings).note


def test_the_best_run_is_chosen_in_each_environment(here):
    make_run(here / 'a', (1.0, 5.0))
    make_run(here / 'b', (1.0, 9.0))
    make_run(here / 'c', (1.0, 2.0), env='Acrobot-v1')
    make_run(here / 'd', status={'best_reward': None})
    runs = [run for group in read_groups(['.']) for run in group.runs]
    assert [run.folder.name for run in best_runs(runs)] == ['b', 'c']


def test_versions_are_those_of_the_last_start():
    def run(**about):
        return RunReport(RunSummary('x', {}, {}), (), {}, None, about)

    first, second = {'numpy': '1'}, {'numpy': '2'}
    runs = [run(versions=first), run(versions=first, resumed=[{'versions': second}]), run(versions=second), run()]
    assert [(versions, len(members)) for versions, members in run_versions(runs)] == [(first, 1), (second, 2), ({}, 1)]


# kinds of results


def test_every_kind_of_result_has_a_page(here):
    make_run(here / 'single')
    make_seeds(here / 'seeds')
    make_grid(here / 'grid')
    make_population(here / 'population')
    make_trials(here / 'study')
    page = page_of('single', 'seeds', 'grid', 'population', 'study')
    assert len(page.numbers('data-run')) == 1 + 3 + 4 + 3
    assert 'Population: population' in page.text and 'Study: study' in page.text and page.all('nav')
    ids = [attributes['id'] for _, attributes, _ in page.elements if 'id' in attributes]
    assert len(ids) == len(set(ids))
    links = {one['href'][1:] for one in page.all('a')}
    assert links and links <= set(ids)


def test_members_of_a_population_are_together(here):
    make_population(here / 'runs' / 'population')
    (group,) = read_groups(['runs'])
    assert group.is_population and [setting.label for setting in group.settings] == [
        'member-00',
        'member-01',
        'member-02',
    ]
    assert compare_options(group.settings).rows == [('--lr', ['0.001', '0.002', '0.003'])]
    page = page_of('runs')
    assert '2 (best)' in page.text and 'The best is member 2, with a score of 10.00' in page.text


def test_trials_are_ranked(here):
    make_trials(here / 'study')
    assert has_trials('study') and not has_trials('.')
    rows = read_trials('study').ranked()
    assert [row['number'] for row in rows] == [1, 0, 2, 3]
    page = page_of('study')
    assert '2 complete, 1 pruned, 1 failed' in page.text and 'The best is trial 1 with 7.25' in page.text


def test_damaged_trials_are_an_error(here):
    (here / 'study').mkdir()
    (here / 'study' / 'trials.parquet').write_text('no')
    with pytest.raises(ValueError, match='not a readable parquet file'):
        page_of('study')
    pd.DataFrame({'number': [1]}).to_parquet('study/trials.parquet')
    with pytest.raises(ValueError, match='the column state is missing'):
        page_of('study')


def test_a_study_without_a_complete_trial_says_so(here):
    frame = pd.DataFrame({'number': [0], 'state': ['running'], 'value': [np.nan]})
    assert 'No trial is complete.' in page_of(studies=[StudyTrials('s', frame, {})]).text


# what cannot be read


def test_what_can_be_read_is_shown_and_the_rest_is_named(here):
    make_seeds(here / 'seeds', 5)
    (here / 'seeds' / 'seed=1' / 'config.yaml').write_text('[')
    (here / 'seeds' / 'seed=2' / 'metrics.parquet').write_text('broken')
    (here / 'seeds' / 'seed=3' / 'status.json').write_text('{')
    (here / 'seeds' / 'seed=4' / 'history.parquet').write_text('broken')
    page = page_of('seeds', check=lambda folder: ([], ''), record=lambda folder: Recording(b'mp4', 'played'))
    for seed in (1, 4):
        assert f'No curve: seeds/seed={seed}' in page.text
    assert 'status.json is not readable' in page.text and 'is no YAML' in page.text
    assert page.numbers('data-evaluated').keys() == {'seeds/seed=3', 'seeds/seed=4', 'seeds/seed=5'}
    assert page.numbers('data-run')['seeds/seed=5']['best_reward'] == [150.0]


@pytest.mark.parametrize('env', ['!!python/object/apply:os.system [x]', '2026-13-99T99:99:99Z', '[a, {b: c}]'])
def test_settings_of_any_form_have_a_page(here, env):
    folder = make_run(here / 'a')
    text = (folder / 'config.yaml').read_text()
    (folder / 'config.yaml').write_text(
        text.replace('env: "CartPole-v1"', f'env: {env}').replace('about:', 'about: 3\nx:')
    )
    make_run(here / 'b')
    page = page_of('a', 'b')
    assert page.numbers('data-run')['b'] and len(page.all('svg')) >= 2


def test_a_run_that_has_just_begun_has_a_page(here):
    folder = make_run(here / 'a', metrics=False, status={'state': 'running', 'mean_reward': None, 'best_reward': None})
    (folder / 'history.parquet').unlink()
    page = page_of('a')
    assert 'killed' in page.text and 'contains no history' in page.text and not page.all('svg')


def test_seeds_without_a_common_range_have_no_curve(here):
    for seed, start in ((1, 0), (2, 9000)):
        folder = make_run(here / 'seeds' / f'seed={seed}', seed=seed, metrics=False)
        (folder / 'history.parquet').unlink()
        writer = HistoryWriter(folder / 'history.parquet')
        writer.append([(1.0, 1.0, 1.0, start + step, 1.0) for step in (1, 2)])
        writer.close()
    (here / 'seeds' / 'group.yaml').write_text('agent: ppo\nenv: CartPole-v1\nseed: [1, 2]\n')
    assert 'no common range' in page_of('seeds').text


@pytest.mark.parametrize('content', ['{', '{"free": 1}', '{"free": {"seed": 1}}'])
def test_a_damaged_population_is_named(here, content):
    make_population(here / 'p')
    (here / 'p' / 'population.json').write_text(content)
    page = page_of('p')
    assert len(page.numbers('data-run')) == 3
    assert not any('lineage' in one.get('aria-labelledby', '') for one in page.all('svg'))


# texts of users


def hostile_page(here):
    folder = make_seeds(here / HOSTILE.replace('/', '|'), 2, env=HOSTILE, wrapper=[HOSTILE], agent=HOSTILE)
    make_run(here / '_x $y', env=HOSTILE, status={'state': HOSTILE, 'why': HOSTILE, 'updated': HOSTILE})
    make_run(here / 'broken', status={'state': 'finished', 'why': HOSTILE})
    (here / 'broken' / 'config.yaml').write_text(f'{HOSTILE}: [')
    make_population(here / 'population', HOSTILE)
    make_trials(here / 'study', HOSTILE)
    (here / 'study' / 'best.yaml').write_text(f'agent: ppo\nenv: {json.dumps(HOSTILE)}\n')
    frame = pd.DataFrame({'number': [0], 'state': [HOSTILE], 'value': [np.nan]})
    options = {
        'studies': [StudyTrials(HOSTILE, frame, {HOSTILE: HOSTILE}, HOSTILE, {HOSTILE: 100.0})],
        'check': lambda folder: [Finding(HOSTILE, HOSTILE, HOSTILE, HOSTILE)],
        'record': lambda folder: Recording(b'', HOSTILE),
        'command': f'xagents report {HOSTILE}',
    }
    return page_of(folder, '_x $y', 'broken', 'population', 'study', **options)


def test_every_text_is_escaped(here):
    page = hostile_page(here)
    tags = {tag for tag, _, _ in page.elements}
    assert not tags & {'script', 'img', 'iframe', 'object', 'embed', 'form', 'base'}
    assert not any(name.startswith('on') for _, attributes, _ in page.elements for name in attributes)
    assert page.text.count(' '.join(HOSTILE.split())) > 15 and '49' not in re.sub(r'\d*\.\d+|\d{3,}', '', page.text)
    assert '<script' not in page.source and '<!-- <img' not in page.source


def test_the_policy_of_the_page_admits_only_its_own_content(here):
    make_run(here / 'a')
    page = page_of('a')
    (policy,) = [one['content'] for one in page.all('meta') if one.get('http-equiv') == 'Content-Security-Policy']
    assert "default-src 'none'" in policy and 'http' not in policy
    addresses = [value for _, one, _ in page.elements for name, value in one.items() if name in ('src', 'href')]
    addresses += [one['xlink:href'] for _, one, _ in page.elements if 'xlink:href' in one]
    assert addresses and all(address.startswith(('#', 'data:')) for address in addresses)
    assert set(re.findall(r'https?://[\w./]+', page.source)) <= {
        'http://www.w3.org/2000/svg',
        'http://www.w3.org/1999/xlink',
    }
    assert 'url(' not in re.sub(r'url\(#\w+\)', '', page.source) and '@import' not in page.source


# findings and videos


def test_equal_findings_are_shown_once(here):
    make_seeds(here / 'seeds', 3)

    def check(folder):
        if folder.name == 'seed=3':
            raise ValueError('no metrics')
        seen = f'rewards up to {folder.name}'
        return [Finding('reward-scale', seen, 'Values are large', 'Try --normalize-reward')], ''

    page = page_of('seeds', check=check)
    assert page.source.count('<h3>reward-scale</h3>') == 1
    assert 'rewards up to seed=1' in page.text and 'rewards up to seed=2' in page.text
    assert 'seeds/seed=3 cannot be checked: no metrics' in page.text
    assert 'found nothing.' in page_of('seeds', check=lambda folder: ([], '')).text
    assert 'Findings' not in page_of('seeds').text


def test_what_was_not_checked_is_said_of_each_run(here):
    make_seeds(here / 'seeds', 2)
    page = page_of('seeds', check=lambda folder: ([], f'no policy in {folder.name}'))
    assert 'found nothing in what was checked.' in page.text
    for seed in (1, 2):
        assert f'seeds/seed={seed}: Not checked: no policy in seed={seed}' in page.text
    code, _, stderr = execute('report', 'seeds', '--no-video')
    assert (code, stderr) == (0, '')
    text = Page(here / 'report.html').text
    assert re.search(r'seeds/seed=1: Not checked: \S', text) and 'doctor found nothing.' not in text


def test_the_video_is_that_of_the_best_run(here, monkeypatch):
    make_seeds(here / 'seeds')
    asked = []

    def record(folder):
        asked.append(folder.name)
        return Recording(b'content', 'an episode')

    (video,) = page_of('seeds', record=record).all('video')
    assert asked == ['seed=3'] and video['src'] == 'data:video/mp4;base64,Y29udGVudA==' and 'controls' in video
    monkeypatch.setattr(report_page, 'MAX_VIDEO_BYTES', 6)
    page = page_of('seeds', record=record)
    assert not page.all('video') and 'The video is left out' in page.text


@pytest.mark.parametrize(
    ('error', 'line'),
    [
        (OptionError('video_dir', 'X-v0 draws no pictures'), 'No video: X-v0 draws no pictures'),
        (ValueError('no\ncheckpoint'), 'No video: no checkpoint'),
        (RuntimeError('no\ndisplay'), 'No video: RuntimeError: no display'),
    ],
)
def test_an_environment_without_pictures_is_one_line(here, error, line):
    make_run(here / 'a')

    def record(folder):
        raise error

    assert line in page_of('a', record=record).text


def test_the_newest_video_of_training_is_used(here):
    folder = make_run(here / 'a')
    (folder / 'videos').mkdir()
    for steps in (100, 2000):
        (folder / 'videos' / f'step-{steps:012}.mp4').write_bytes(str(steps).encode())
    assert record_best(folder) == (b'2000', 'a greedy episode during training, at step 2,000')


# charts and size


def test_charts_have_the_colours_of_the_page_and_texts_for_screen_readers(here):
    make_grid(here / 'grid')
    make_population(here / 'p')
    make_trials(here / 'study')
    page = page_of('grid', 'p', 'study')
    charts = [one for one in page.all('svg') if one.get('class') == 'chart']
    assert len(charts) == 2 * 4 and all(one['role'] == 'img' for one in charts)
    svg = ''.join(re.findall(r'<svg .*?</svg>', page.source, re.DOTALL))
    assert 'var(--c0)' in svg and not re.search(r'#[0-9a-fA-F]{6}\b', re.sub(r'(url\(|href=")#\w+', '', svg))
    texts = {attributes['id'] for _, attributes, _ in page.elements if 'id' in attributes}
    assert all(set(one['aria-labelledby'].split()) <= texts for one in charts)
    variables = set(re.findall(r'var\((--\w+)\)', page.source))
    for theme in re.findall(r':root \{(.*?)\}', page.source, re.DOTALL):
        assert variables == set(re.findall(r'(--\w+):', theme))


def frame_of(values):
    return pd.DataFrame({'step': np.arange(len(values)) * 100.0, 'mean_reward': np.asarray(values, float)})


def test_the_best_curves_are_drawn_and_the_line_says_how_many():
    labels = [f'lr={index}' for index in range(9)]
    chart = curve_chart([frame_of([0, index]) for index in range(9)], labels, 'mean_reward', 'a', 'Mean')
    assert [key.label for key in chart.legend] == [f'lr={index}' for index in range(8, 8 - len(CURVE_COLOURS), -1)]
    assert f'The {len(CURVE_COLOURS)} of 9 curves' in chart.notes[0]


def test_a_curve_has_the_same_colour_in_every_chart():
    colours = {}
    frames, labels = [frame_of([0, 3]), frame_of([0, 2]), frame_of([0, 1]), frame_of([0, 1])], ['a', 'b', 'c', 'c']
    first = curve_chart(frames, labels, 'mean_reward', 'a', 'Mean', colours)
    second = curve_chart([*frames[1:], frame_of([0, 9])], [*labels[1:], 'd'], 'mean_reward', 'b', 'Mean', colours)
    assert {key.label: key.colour for key in first.legend} == {'a': 0, 'b': 1, 'c': 2}
    assert {key.label: key.colour for key in second.legend} == {'d': 0, 'b': 1, 'c': 2}
    for colour, label, curve in ((0, 'd', 9), (1, 'b', 2)):
        (line,) = re.findall(rf'<title>{label}: {curve}.00 at the end</title><path [^>]*>', second.wide)
        assert f'var(--c{colour})' in line
    assert re.search(r'fill: var\(--c2\); fill-opacity: 0.2', second.wide)


def test_runs_on_data_sets_have_one_chart(here):
    make_run(here / 'a', dataset='d/e-v0')
    (here / 'a' / 'history.parquet').unlink()
    page = page_of('a')
    assert 'Mean reward of evaluations' in page.text and 'training episodes' not in page.text


def test_the_legend_has_the_values_and_the_runs_of_a_curve():
    frames = [frame_of([0, 4]), frame_of([0, 8]), frame_of([1, 2, np.nan])]
    chart = curve_chart(frames, ['_seeds', '_seeds', 'b'], 'mean_reward', 'a', 'Mean')
    assert [(key.label, key.n, key.last) for key in chart.legend] == [('_seeds', 2, 6.0), ('b', 1, 2.0)]
    assert '_seeds ends at 6.00; b ends at 2.00' in chart.description and '95 %' in chart.notes[0]


def test_five_long_runs_take_less_than_a_megabyte(here):
    rng = np.random.default_rng(0)
    for seed in range(5):
        make_run(here / 'seeds' / f'seed={seed}', rng.normal(100, 50, 20_000).tolist(), seed=seed, metrics=False)
    (here / 'seeds' / 'group.yaml').write_text('agent: ppo\nenv: CartPole-v1\nseed: [0, 1, 2, 3, 4]\n')
    page_of('seeds')
    assert (here / 'report.html').stat().st_size < 1e6


# the command


@pytest.mark.parametrize(
    ('words', 'line'),
    [
        (['nothing'], 'there is no directory nothing'),
        (['empty'], 'empty contains no run, expected the --run-dir of a training run'),
        (['a', '--out', 'x.txt'], '--out: got x.txt, expected a path that ends in .html'),
        (['a', '--out', 'r.htm'], '--out: got r.htm, expected a path that ends in .html'),
        (['a', '--out', 'none/x.html'], '--out: there is no directory'),
        (['a', '--study', 's'], '--study: got s, which requires --storage'),
        (['--out', 'x.html'], 'got no directory, expected directories of runs'),
        (['--storage', 'sqlite:///none.db'], '--storage: there is no file none.db'),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(here, words, line):
    make_run(here / 'a')
    (here / 'empty').mkdir()
    before = sorted(here.rglob('*'))
    code, stdout, stderr = execute('report', *words)
    assert code == 2 and line in stderr and stderr.count('\n') == 1 and not stdout
    assert sorted(here.rglob('*')) == before


def test_a_page_is_replaced_as_a_whole(here, monkeypatch):
    make_run(here / 'a')
    (here / 'report.html').write_text('before')

    def fail(folder):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        page_of('a', check=fail)
    assert (here / 'report.html').read_text() == 'before'
    page_of('a')
    assert 'before' not in (here / 'report.html').read_text()


def test_a_study_of_a_storage_has_importances(here):
    import optuna

    study = optuna.create_study(study_name='s', storage='sqlite:///s.db', direction='maximize')
    shared = {'agent': 'ppo', 'env': 'CartPole-v1', 'objective': 'reward', 'fixed': {}, 'trial_steps': 9}
    for name, value in shared.items():
        study.set_user_attr(name, value)
    space = {'lr': optuna.distributions.FloatDistribution(0, 1), 'gamma': optuna.distributions.FloatDistribution(0, 1)}
    for number in range(12):
        parameters = {'lr': number / 12, 'gamma': (5 * number % 12) / 12}
        study.add_trial(optuna.create_trial(params=parameters, distributions=space, value=float(number)))
    code, stdout, stderr = execute('report', '--storage', 'sqlite:///s.db', '--out', 'study.html')
    assert (code, stderr) == (0, '') and 'Report saved to study.html' in stdout
    page = Page(here / 'study.html')
    shares = re.findall(r'--(\w+) (\d+)', page.text.partition('among the best trials')[2].partition('Trials')[0])
    assert {name for name, _ in shares} == {'lr', 'gamma'} and sum(int(share) for _, share in shares) in (99, 100, 101)
    assert 'max-steps 9' in page.text
    code, _, stderr = execute('report', '--storage', 'sqlite:///s.db', '--study', 't')
    assert code == 2 and '--study: got t, expected s' in stderr


def test_a_trained_policy_is_played_and_shown(here):
    words = ['train', 'ppo', '--env', 'CartPole-v1', '--n-envs', '2', '--n-steps', '16', '--net', '8', '--seed', '1']
    code, _, _ = execute(*words, '--max-steps', '300', '--run-dir', 'run', '--final-episodes', '0', '--quiet')
    assert code == 0
    code, stdout, stderr = execute('report', 'run', '--out', 'run.html')
    assert (code, stdout, stderr) == (0, 'Report saved to run.html\n', '')
    page = Page(here / 'run.html')
    (video,) = page.all('video')
    assert video['src'].startswith('data:video/mp4;base64,') and 'a greedy episode with the reward' in page.text
    assert 'xagents report run --out run.html' in page.text and '--n-steps' in page.text
    code, _, _ = execute('report', 'run', '--out', 'run.html', '--no-video')
    assert code == 0 and not Page(here / 'run.html').all('video')
    shutil.rmtree('run/checkpoints')
    code, _, _ = execute('report', 'run', '--out', 'run.html')
    assert code == 0 and 'No video: ' in Page(here / 'run.html').text


# in a browser


CONTRASTS = """() => {
    const channels = color => color.match(/[\\d.]+/g).map(Number)
    const light = color => channels(color).slice(0, 3).map(c => c / 255)
        .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0)
    const ground = element => {
        for (; element; element = element.parentElement) {
            const color = getComputedStyle(element).backgroundColor
            if ((channels(color)[3] ?? 1) > 0) return color
        }
    }
    const found = []
    for (const element of document.querySelectorAll('body *')) {
        const own = [...element.childNodes].some(node => node.nodeType == 3 && node.data.trim())
        if (!own || !element.getClientRects().length || element.closest('title, desc, style')) continue
        const style = getComputedStyle(element)
        const ink = style[element.closest('svg') ? 'fill' : 'color']
        const pair = [ink, ground(element)].map(light).sort((a, b) => b - a)
        found.push([(pair[0] + 0.05) / (pair[1] + 0.05), element.tagName, element.textContent.slice(0, 30)])
    }
    return found
}"""
TEXT_SIZES = """() => [...document.querySelectorAll('svg.chart text')].filter(text => text.getClientRects().length)
    .map(text => parseFloat(getComputedStyle(text).fontSize) * text.ownerSVGElement.getBoundingClientRect().width
        / text.ownerSVGElement.viewBox.baseVal.width)"""


@pytest.fixture
def visit(browser):
    """Open a page as a file at a width and in a theme; check that nothing else was requested and nothing ran."""
    pages = []

    def open_page(path, width, theme):
        page = browser.new_page(viewport={'width': width, 'height': 900}, color_scheme=theme)
        asked, wrong = [], []
        page.on('request', lambda request: asked.append(request.url))
        for event in ('dialog', 'pageerror', 'console'):
            page.on(event, lambda thing: wrong.append(str(thing)))
        page.goto(path.as_uri())
        pages.append((page, path, asked, wrong))
        return page

    yield open_page
    for page, path, asked, wrong in pages:
        page.close()
        assert not wrong and {url for url in asked if not url.startswith('data:')} == {path.as_uri()}


@pytest.fixture(scope='module')
def pages(tmp_path_factory):
    """Two pages: one with hostile texts, one with long ones."""
    here = tmp_path_factory.mktemp('pages')
    with contextlib.chdir(here):
        hostile_page(here)
        make_grid(here / 'a-grid-with-a-rather-long-name')
        save_report(
            ['a-grid-with-a-rather-long-name', 'study'],
            'long.html',
            check=lambda folder: (
                [Finding('reward-scale', 'x' * 300, 'Values are large', 'Try --normalize-reward')],
                '',
            ),
            command='xagents report ' + 'y' * 300,
        )
    return [here / 'report.html', here / 'long.html']


@needs_browser
@pytest.mark.parametrize('theme', ['light', 'dark'])
@pytest.mark.parametrize('width', [400, 1280])
def test_the_page_fits_and_can_be_read(pages, visit, width, theme):
    for path in pages:
        page = visit(path, width, theme)
        page.evaluate('document.querySelectorAll("details").forEach(one => one.open = true)')
        assert page.evaluate('document.documentElement.scrollWidth') <= width
        contrasts = page.evaluate(CONTRASTS)
        assert len(contrasts) > 50 and min(contrasts)[0] >= 4.5, min(contrasts)
        sizes = page.evaluate(TEXT_SIZES)
        assert sizes and min(sizes) >= 11
        ground = page.evaluate('getComputedStyle(document.body).backgroundColor')
        assert (ground == 'rgb(255, 255, 255)') == (theme == 'light')


@needs_browser
def test_curves_can_be_told_from_the_page(pages, visit):
    script = 'name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()'

    def light(colour):
        channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    for theme in ('light', 'dark'):
        page = visit(pages[0], 1280, theme)
        ground = light(page.evaluate(script, '--page'))
        for index in range(len(CURVE_COLOURS)):
            pair = sorted((ground, light(page.evaluate(script, f'--c{index}'))))
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 3, (theme, index)
