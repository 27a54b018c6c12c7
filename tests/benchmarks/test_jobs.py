"""The job runner: it keeps results, skips kept ones, continues after failures, and replaces only its own section."""

import functools
import importlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks import jobs, tables
from benchmarks.jobs import Job, Part
from benchmarks.processes import Failed
from benchmarks.reliability import run as reliability
from tests.benchmarks.common import MACHINE, markers


@pytest.mark.parametrize(
    'module',
    [
        'speed.run', 'speed.replay', 'speed.evaluations', 'learning.run', 'learning.hindsight', 'learning.spaces',
        'learning.pretrained', 'learning.doctor', 'offline.run', 'teams.run', 'tuning.run', 'tuning.populations',
        'reliability.run', 'explorers.run',
    ],
)  # fmt: skip
def test_every_script_has_a_help_page(module, monkeypatch, capsys):
    monkeypatch.setattr('sys.argv', ['script', '--help'])
    with pytest.raises(SystemExit, match='0'):
        importlib.import_module(f'benchmarks.{module}').main()
    assert f'python -m benchmarks.{module}' in capsys.readouterr().out


def measured(value):
    if value < 0:
        raise Failed('the reason')
    return {'value': value}


@pytest.mark.parametrize('n_parallel', [1, 2])
def test_jobs_continue_after_a_failure(n_parallel, monkeypatch, capsys):
    monkeypatch.setattr(tables, 'machine', lambda: MACHINE)
    kept = {}
    waiting = [Job(f'job {n}', functools.partial(measured, n), n) for n in (1, -1, 3)]

    def keep(job, result, machine):
        kept[job.about] = result['value'], machine['cpu']

    assert not jobs.measure_all(waiting, lambda result: f'found {result["value"]}', keep, n_parallel)
    assert kept == {1: (1, 'a CPU'), 3: (3, 'a CPU')}
    printed = capsys.readouterr().err
    assert 'job -1: the reason' in printed and 'job 3: found 3' in printed
    with pytest.raises(ZeroDivisionError):  # an error of the benchmark itself
        list(jobs.run_all([Job('wrong', lambda: 1 / 0)], n_parallel))


@pytest.mark.parametrize('name', ['rows.json', 'rows.jsonl'])
def test_kept_rows_are_not_measured_again(name, tmp_path, capsys):
    page, path, asked = tmp_path / 'page.md', tmp_path / name, []
    page.write_text(f'above\n{markers("rows")}below\n')

    def run(*numbers, words=()):
        options = jobs.make_parser('x.run', 'About.', page, name).parse_args(['--results', str(path), *words])

        def measure(number):
            asked.append(number)
            return measured(number)

        def row(job, result, machine):
            return {**job.about, **result}

        waiting = [Job(f'{n}', functools.partial(measure, n), {'number': n}) for n in numbers]
        return jobs.run_rows(
            options, lambda: waiting, lambda row: jobs.parse_key(row['number']), row, str, lambda rows: f'rows {rows}'
        )

    assert run(1, -2) == 1 and run(1, -2, 3) == 1
    assert asked == [1, -2, -2, 3]
    rows = [{'number': 1, 'value': 1}, {'number': 3, 'value': 3}]
    assert jobs.read_rows(path) == rows
    text = f'above\n<!-- benchmark rows -->\nrows {rows}\n<!-- end of benchmark rows -->\nbelow\n'
    assert page.read_text() == text
    assert run(9, words=['--quick']) == 0 and jobs.read_rows(path) == rows and page.read_text() == text
    assert run(5, words=['--docs']) == 0 and asked[-1] == 9
    jobs.keep_row(path, {'number': 1, 'value': 7}, lambda row: str(row['number']))
    assert [row['value'] for row in jobs.read_rows(path)] == [3, 7]


def test_parallel_writers_lose_no_result(tmp_path):
    nested, rows = tmp_path / 'new' / 'results.json', tmp_path / 'new' / 'rows.jsonl'

    def keep_both(number):
        jobs.keep(nested, number, 'results', str(number))
        jobs.keep_row(rows, {'number': number}, lambda row: str(row['number']))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(keep_both, range(80)))
    assert jobs.read(nested) == {'results': {str(number): number for number in range(80)}}
    assert sorted(row['number'] for row in jobs.read_rows(rows)) == list(range(80))


def test_each_part_is_kept_and_written_with_the_others(tmp_path, monkeypatch):
    page, asked = tmp_path / 'page.md', []
    page.write_text(markers('reliability'))
    arguments = ['--results', str(tmp_path / 'folder' / 'reliability.json'), '--page', str(page)]

    def part(name, result):
        def measure(folder, options, log):
            assert list(folder.iterdir()) == []
            asked.append((name, options.quick))
            return {'value': (options.steps or result) if measured(result) else 0}

        used = ('steps', 'agents') if name == 'exact' else ()
        return Part(f'Part {name}', measure, lambda kept: f'{name} is {kept["value"]}', used)

    monkeypatch.setattr(reliability, 'PARTS', {n: part(n, v) for n, v in (('exact', 1), ('kills', 2), ('fuzz', -1))})
    monkeypatch.setattr(tables, 'machine', lambda: MACHINE)
    assert reliability.main(['--only', 'exact', '--quick', *arguments]) == 0
    assert 'exact' not in page.read_text() and not (tmp_path / 'folder').exists()
    assert reliability.main(['--only', 'kills', '--folder', str(tmp_path / 'kept'), *arguments]) == 0
    assert (tmp_path / 'kept' / 'kills').is_dir() and 'kills is 2' in page.read_text()
    assert reliability.main(['--steps', '5', '--agents', 'ppo', 'dqn', *arguments]) == 1
    assert asked == [('exact', True), ('kills', False), ('exact', False), ('kills', False), ('fuzz', False)]
    text = page.read_text()
    assert '### Part exact\n\nexact is 5\n\n2026-01-02, a CPU, 2 cores, Linux x86_64, load 0.1' in text
    assert '`python -m benchmarks.reliability.run --only exact --steps 5 --agents ppo dqn`' in text
    assert '`python -m benchmarks.reliability.run --only kills`' in text and 'fuzz' not in text
    # without kept results, tables on the page stay
    (tmp_path / 'folder' / 'reliability.json').unlink()
    assert reliability.main(['--only', 'kills', '--steps', '7', *arguments]) == 0
    text = page.read_text()
    assert 'exact is 5' in text and 'kills is 7' in text and 'kills is 5' not in text
    for words in (['--only', 'speed'], ['--steps', '0']):
        with pytest.raises(SystemExit, match='2'):
            reliability.main(words)
