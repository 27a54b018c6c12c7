"""Send random messages to a learner and to explorers, and check tracebacks, memory, and the result of the run."""

import argparse
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.processes import Failed, module, running

MESSAGES, QUICK_MESSAGES = 10_000, 300
# largest growth of memory, compared with that for honest messages
MOST_MB = 64
LEARNERS = {'unix': 'a learner, Unix socket', 'tls': 'a learner, TLS and token'}
TIMEOUT = 1800.0


def measure_messages(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Send a quarter of the messages to a learner with each transport, and half to explorers."""
    number = QUICK_MESSAGES if options.quick else options.messages
    jobs = {name: ('learner', {'transport': name, 'messages': number // 4, 'seed': options.seed}) for name in LEARNERS}
    jobs['explorers'] = ('fake-learner', {'messages': number // 2, 'seed': options.seed})
    found = {}
    for name, (role, job) in jobs.items():
        (folder / name).mkdir()
        words = module('explorers.attackers', job)
        found[name] = outcome([*words[:-1], role, words[-1]], folder / name)
        log(f'{name}: {found[name]}')
    return {'rows': found}


def outcome(command: list[str], folder: Path) -> dict[str, Any]:
    """Run a command; return its result, its problem, and the number of tracebacks."""
    with running(command, folder) as run:
        try:
            run.wait(TIMEOUT)
        except Failed as error:
            return {'problem': str(error), 'tracebacks': count(run.errors.read_text())}
    results = run.events('result')
    tracebacks = count(run.errors.read_text())
    if not results:
        return {'problem': run.problem, 'tracebacks': tracebacks}
    result = results[-1][1]
    return {**result, 'tracebacks': tracebacks + result.get('tracebacks', 0)}


def count(printed: str) -> int:
    """Return the number of tracebacks in a text."""
    return printed.count('Traceback (most recent call last)')


def render_messages(result: dict[str, Any]) -> str:
    """Return the table of targets, with problems below it."""
    rows, problems = [], []
    for name, row in result['rows'].items():
        label = LEARNERS.get(name, 'explorers')
        cells = [label, *(['', '', '', 'failed'] if 'problem' in row else cells_of(row))]
        rows.append([*cells[:3], row['tracebacks'], *cells[3:]])
        problems += [f'{label}: {text}' for text in problems_of(row)]
    heading = ['target', 'messages', 'among them', 'tracebacks', 'memory grew by, MB', 'result']
    note = f'Required: growth by at most {MOST_MB} MB, compared with that for honest messages.'
    return tables.markdown(heading, rows, *tables.with_problems(note, problems))


def cells_of(row: dict[str, Any]) -> list[str]:
    """Return messages, their kinds, growth, and the result of one target."""
    growth = tables.number(row['growth'], 1)
    if 'explorers' in row:
        among = f'to {row["explorers"]} explorers, one after the other'
        return [tables.number(row['sent']), among, growth, 'each ended with one line or continued']
    sent = tables.number(sum(row['sent'].values()))
    among = f'{row["slots"]} slots taken, {row["fragments"]} wrong fragments'
    return [sent, among, growth, 'the weights of an undisturbed run' if row['equal'] else 'other weights']


def problems_of(row: dict[str, Any]) -> list[str]:
    """Return the problems of one target, a line each."""
    if 'problem' in row:
        return [row['problem']]
    found = [f'grew by more than {MOST_MB} MB'] if row['growth'] > MOST_MB else []
    if row.get('killed'):
        found.append(f'{len(row["killed"])} were killed for {", ".join(sorted({*row["killed"]}))}')
    found += [f'{row["talkative"]} did not end with one line'] if row.get('talkative') else []
    found += [f'exit codes {row["codes"]}'] if row.get('codes') else []
    return found + [' / '.join(lines) for lines in row.get('examples', ())]
