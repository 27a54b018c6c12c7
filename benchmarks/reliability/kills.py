"""Kill trainings with `kill -9` at random times: do they resume, can every file be read, and what is lost?"""

import argparse
import itertools
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks import tables
from benchmarks.jobs import Log
from benchmarks.processes import Failed, Process, running
from benchmarks.reliability.runs import SETTINGS, resume, train

# time of a kill: while the process starts, while its first or a later checkpoint is written, right after a checkpoint,
# or at any time of the training
MOMENTS = ('start', 'first save', 'saving', 'saved', 'any')
KILLS_A_FOLDER = 5
RESUMED = re.compile(r'^Resumed .* at step (\d+)')


@dataclass
class Kill:
    """One kill and its consequences.

    Args:
        agent: id of the agent.
        moment: one of `MOMENTS`.
        reported: steps that the run had reported in console, history or metrics.
        saved: steps of the last checkpoint; 0 without one.
        seconds: of training since the last checkpoint.
        shown: of these, until the last status line, that is without the iteration in flight.
        silence: longest time between two status lines, or from the last one to the kill: no iteration was longer.
        unreadable: one line for each file that could not be read.
        files: number of files and checkpoints that were read.
        resumed: step at which a later call resumed; None without one.
    """

    agent: str
    moment: str
    reported: int = 0
    saved: int = 0
    seconds: float = 0.0
    shown: float = 0.0
    silence: float = 0.0
    unreadable: list[str] = field(default_factory=list)
    files: int = 0
    resumed: int | None = None

    @property
    def lost(self) -> int:
        """Steps that were reported and are lost."""
        return max(self.reported - self.saved, 0)

    def beyond(self, save_seconds: float) -> float:
        """Return the lost seconds beyond the promise, which is `save_seconds` and one iteration."""
        return max(self.seconds - save_seconds - self.silence, 0.0) if self.lost else 0.0


def link(run_dir: Path) -> str:
    """Return the name of the last checkpoint; empty without one."""
    try:
        return os.readlink(run_dir / 'checkpoints' / 'last')
    except OSError:
        return ''


def being_written(run_dir: Path) -> bool:
    """Return whether a checkpoint is being written."""
    try:
        return any(name.endswith('.new') for name in os.listdir(run_dir / 'checkpoints'))
    except OSError:
        return False


def last_steps(run_dir: Path) -> int:
    """Return the steps of the last checkpoint; 0 without one."""
    from xagents.checkpoints.state_files import read_record

    last = newest(run_dir)
    return 0 if last is None else read_record(last)['counters']['steps']


def newest(run_dir: Path) -> Path | None:
    """Return the newest whole checkpoint, also if a kill came before `last` was linked to it; None without one."""
    from xagents.checkpoints.state_files import newest_complete

    return run_dir / 'checkpoints' / 'last' if link(run_dir) else newest_complete(run_dir / 'checkpoints')


def examine(run_dir: Path, kill: Kill) -> None:
    """Read every file after a kill, and add those that cannot be read."""
    from xagents.checkpoints.state_files import read_state
    from xagents.checkpoints.status import read_status
    from xagents.factory.load import read_config
    from xagents.logs.history import read_history
    from xagents.logs.metrics import read_metrics

    files: list[tuple[str, Callable[[Path], Any], Path]] = [
        ('config.yaml', lambda path: read_config(path.parent), run_dir),
        ('status.json', lambda path: read_status(path.parent), run_dir),
        ('history.parquet', read_history, run_dir),
        ('metrics.parquet', read_metrics, run_dir),
    ]
    checkpoints = run_dir / 'checkpoints'
    if checkpoints.is_dir():
        files += [(path.name, read_state, checkpoints) for path in checkpoints.iterdir() if path.name[0] != '.']
    for name, read, place in files:
        path = place / name
        if not (path.exists() or path.is_symlink()):
            continue
        kill.files += 1
        try:
            content = read(path)
        except Exception as error:  # any error means that the file cannot be read
            kill.unreadable.append(f'{name}: {type(error).__name__}: {error}')
            continue
        for column in ('step', 'steps'):
            if name.endswith('.parquet') and column in content and len(content):
                kill.reported = max(kill.reported, int(content[column].iloc[-1]))
                if column == 'steps' and not content[column].is_unique:
                    kill.unreadable.append(f'{name}: duplicate step')
    for name in ('best', 'last'):
        if (checkpoints / name).is_symlink() and not (checkpoints / name).is_dir():
            kill.unreadable.append(f'{name}: broken link')


def measure_loss(run_dir: Path, kill: Kill, run: Process, began: float | None, when: float) -> None:
    """Compute the loss: the difference between the reports of the run and its last whole checkpoint.

    Args:
        run_dir: the run directory.
        kill: gets the result.
        run: the killed process.
        began: start of the training; None if it had not started.
        when: time of the kill.
    """
    kill.saved = last_steps(run_dir)
    status = [moment for moment, _ in run.events('status') if moment <= when]
    kill.reported = max(kill.reported, run.steps)
    if began is None:  # without training nothing can be lost
        kill.reported = kill.saved
        return
    last = newest(run_dir)
    written = 0.0 if last is None else (last / 'state.npz').stat().st_mtime
    kill.seconds = when - max(written, began)
    kill.shown = max((status or [began])[-1] - max(written, began), 0.0)
    # the first iteration, which compiles, counts if this call has saved nothing
    moments = [*([began] if written < began or not status else []), *status, when]
    kill.silence = max(b - a for a, b in itertools.pairwise(moments))


def measure_kills(folder: Path, options: argparse.Namespace, log: Log) -> dict[str, Any]:
    """Kill runs of the agents in turn.

    Returns:
        The kills, and problems of whole folders.
    """
    agent_ids = list(options.agents or SETTINGS)
    count = options.kills or (len(agent_ids) if options.quick else 100)
    kills: list[Kill] = []
    problems: list[str] = []
    for number, (agent_id, share) in enumerate(shares(agent_ids, count)):
        place = folder / f'{number:03}-{agent_id}'
        place.mkdir()
        killer = Killer(agent_id, place, options.save_seconds, random.Random(f'{options.seed} {number}'), log)
        try:
            killer.run(share)
        except (Failed, ValueError) as error:
            problems.append(f'{agent_id}, folder {number}: {error}')
            log(problems[-1])
        kills += killer.kills
        log(f'{len(kills)} of {count} kills, {sum(kill.resumed is not None for kill in kills)} resumed')
    records = [{**vars(kill), 'lost': kill.lost, 'beyond': kill.beyond(options.save_seconds)} for kill in kills]
    return {'kills': records, 'problems': problems, 'save_seconds': options.save_seconds}


def shares(agent_ids: list[str], count: int) -> Iterator[tuple[str, int]]:
    """Yield agents in turn, each with a number of kills in one folder."""
    while count > 0:
        for agent_id in agent_ids:
            share = min(KILLS_A_FOLDER, count)
            if share:
                yield agent_id, share
            count -= share


class Killer:
    """Kills one run repeatedly, and examines its run directory after each kill.

    Args:
        agent_id: id of the agent.
        folder: parent of the run directory `run`.
        save_seconds: option of the run.
        generator: of random times.
        log: prints progress.
    """

    def __init__(self, agent_id: str, folder: Path, save_seconds: float, generator: random.Random, log: Log):
        self.agent_id, self.folder, self.save_seconds = agent_id, folder, save_seconds
        self.generator, self.log = generator, log
        self.run_dir = folder / 'run'
        self.kills: list[Kill] = []
        self.start_seconds = 10.0  # until the first status line, measured in the last call
        self.resuming = False

    def run(self, count: int) -> None:
        """Kill so many times, then let the run end.

        Raises:
            Failed: if a command fails or hangs.
        """
        first = ['start', 'first save', 'any'] if count > 1 else ['first save', 'any']
        moments = [self.generator.choice(first)]
        moments += [self.generator.choice(('start', 'saving', 'saved', 'any')) for _ in range(count - 1)]
        for moment in moments:
            with running(self.command(), self.folder) as run:
                began = self.wait_for(run, moment)
                run.signal(signal.SIGKILL)
                when = time.time()
                if run.wait() != -signal.SIGKILL:
                    raise Failed(f'ended before the kill: {run.problem}')
            self.note_resumed(run)
            kill = Kill(self.agent_id, moment)
            self.kills.append(kill)
            examine(self.run_dir, kill)
            measure_loss(self.run_dir, kill, run, began, when)
            reads = kill.unreadable or f'{kill.files} files read'
            self.log(f'{self.agent_id}: {moment}: lost {kill.lost} steps, {kill.seconds:.2f} s; {reads}')
        with running(self.command(until=True), self.folder) as run:
            if run.wait() != 0:
                raise Failed(f'after {count} kills: {run.problem}')
        self.note_resumed(run)
        self.log(f'{self.agent_id}: resumed to its end')

    def command(self, until: bool = False) -> list[str]:
        """Return the command that starts or resumes the run; with `until` it ends after one more iteration."""
        saved = last_steps(self.run_dir)
        end = ['--max-steps', saved + 1] if until else []
        self.resuming = (self.run_dir / 'config.yaml').exists()
        if self.resuming:
            return resume(self.run_dir, *end)
        options = {'seed': 3, 'save_seconds': self.save_seconds, 'final_episodes': 0, 'schedule_steps': 10**7}
        return train(self.agent_id, self.run_dir, *end, **options, **({} if until else {'max_steps': 10**9}))

    def wait_for(self, run: Process, moment: str) -> float | None:
        """Wait for the time of a kill; return the start of the training, None if it has not started."""
        before = link(self.run_dir)
        if moment == 'start':
            time.sleep(self.generator.uniform(0, self.start_seconds))
        elif moment == 'first save':
            run.wait_until(lambda: being_written(self.run_dir) or link(self.run_dir) != before, pause=0.0003)
            time.sleep(self.generator.uniform(0, 0.03))
        else:
            run.wait_until(lambda: run.events('status'))
            started = psutil.Process(run.popen.pid).create_time()
            self.start_seconds = run.events('status')[0][0] - started
            time.sleep(self.generator.uniform(0, self.save_seconds))
            if moment == 'any':
                time.sleep(self.generator.uniform(0, 1.5 * self.save_seconds))
            elif moment == 'saving':
                run.wait_until(lambda: being_written(self.run_dir), pause=0.0003)
                time.sleep(self.generator.uniform(0, 0.03))
            else:
                before = link(self.run_dir)
                run.wait_until(lambda: link(self.run_dir) != before, pause=0.0003)
                time.sleep(self.generator.uniform(0, 0.03))
        starts = run.events('start')
        return starts[0][0] if starts else None

    def note_resumed(self, run: Process) -> None:
        """Store the step at which a call resumed in the kills since the last resume.

        Raises:
            Failed: if the call did not resume from the last checkpoint.
        """
        steps = [int(match[1]) for _, line in run.events('message') if (match := RESUMED.match(line['text']))]
        waiting = [kill for kill in self.kills if kill.resumed is None]
        # a call that was killed before its message proves nothing
        if not waiting or not (steps if self.resuming else run.events('start')):
            return
        resumed = steps[0] if self.resuming else 0
        if resumed != waiting[-1].saved:
            raise Failed(f'resumed at step {resumed}, and the last checkpoint was at {waiting[-1].saved}')
        for kill in waiting:
            kill.resumed = resumed


def render_kills(result: dict[str, Any]) -> str:
    """Return the table of kills by agent, with problems below it."""
    heading = ['', 'kills', 'resumed', 'files read', 'unreadable', 'largest loss, s', 'steps']
    heading += ['without the iteration in flight, s', 'beyond the promise, s']
    kills, rows = result['kills'], []
    groups = {agent_id: [kill for kill in kills if kill['agent'] == agent_id] for agent_id in SETTINGS}
    for name, own in {**groups, 'all': kills}.items():
        if own:
            worst = max((kill for kill in own if kill['lost']), key=lambda kill: kill['seconds'], default=None)
            cells = [name, len(own), sum(kill['resumed'] is not None for kill in own)]
            cells += [sum(kill['files'] for kill in own), sum(len(kill['unreadable']) for kill in own)]
            cells += [f'{worst["seconds"]:.2f}', worst['lost']] if worst else ['0', 0]
            shown = max((kill['shown'] for kill in own if kill['lost']), default=0.0)
            cells += [f'{shown:.2f}', f'{max(kill["beyond"] for kill in own):.2f}']
            rows.append(cells)
    moments = Counter(kill['moment'] for kill in kills)
    when = ', '.join(f'{moment} {moments[moment]}' for moment in MOMENTS if moments[moment])
    note = f'`--save-seconds {result["save_seconds"]:g}`; moments of the kills: {when}.'
    problems = list(result['problems'])
    problems += [f'{kill["agent"]}, {kill["moment"]}: {text}' for kill in kills for text in kill['unreadable']]
    return tables.markdown(heading, rows, *tables.with_problems(note, problems))
