"""Messages at random to a learner and to explorers: tracebacks, memory, and what the run comes to."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.reliability.runs import running
from benchmarks.speed.run import Failed

MESSAGES, QUICK_MESSAGES = 10_000, 300
# memory that may be taken beside that of honest messages
MOST_MB = 64
LEARNERS = {'unix': 'a learner, Unix socket', 'tls': 'a learner, TLS and token'}
TIMEOUT = 1800.0


def measure_messages(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Send a quarter of the messages to a learner on each of its ways, and half to explorers."""
    number = QUICK_MESSAGES if options.quick else options.messages
    jobs = {
        way: ['benchmarks.explorers.victim', json.dumps({'way': way, 'messages': number // 4, 'seed': options.seed})]
        for way in LEARNERS
    }
    jobs['explorers'] = ['benchmarks.explorers.liar', str(number // 2), str(options.seed)]
    found = {}
    for name, words in jobs.items():
        place = folder / name
        place.mkdir()
        found[name] = outcome(words, place)
        log(f'{name}: {found[name]}')
    return {'rows': found}


def outcome(words: list[str], folder: Path) -> dict[str, Any]:
    """Run one end in a process of its own; return what became of it, and what it printed on stderr."""
    with running([sys.executable, '-m', *words], folder) as run:
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
    """Return how many tracebacks there are in a text."""
    return printed.count('Traceback (most recent call last)')


def render_messages(result: dict[str, Any]) -> str:
    """A row for each end, with what was wrong below."""
    rows, problems = [], []
    for name, row in result['rows'].items():
        label = LEARNERS.get(name, 'explorers')
        cells = [label, *(['', '', '', 'failed'] if 'problem' in row else described(row))]
        rows.append([*cells[:3], row['tracebacks'], *cells[3:]])
        problems += [f'- {label}: {text}' for text in wrong(row)]
    heading = ['end', 'messages', 'among them', 'tracebacks', 'memory grew by, MB', 'in the end']
    note = f'At most {MOST_MB} MB are asked for, beside what honest messages take.'
    return tables.markdown(heading, rows, note, *([''] if problems else []), *problems)


def described(row: dict[str, Any]) -> list[str]:
    """Return messages, what is among them, growth, and the end, of one end that was measured."""
    growth = tables.number(row['growth'], 1)
    if 'explorers' in row:
        among = f'to {row["explorers"]} explorers, one after the other'
        return [tables.number(row['sent']), among, growth, 'ended with a line or went on']
    sent = tables.number(sum(row['sent'].values()))
    among = f'{row["slots"]} slots taken, {row["fragments"]} wrong fragments'
    return [sent, among, growth, 'the weights of the run alone' if row['equal'] else 'other weights']


def wrong(row: dict[str, Any]) -> list[str]:
    """Return what was wrong at one end, a line each."""
    if 'problem' in row:
        return [row['problem']]
    found = [f'grew by more than {MOST_MB} MB'] if row['growth'] > MOST_MB else []
    found += (
        [f'{len(row["killed"])} were killed for {", ".join(sorted({*row["killed"]}))}'] if row.get('killed') else []
    )
    found += [f'{row["talkative"]} did not end with one line'] if row.get('talkative') else []
    found += [f'exit codes {row["codes"]}'] if row.get('codes') else []
    return found + [' / '.join(lines) for lines in row.get('examples', ())]
