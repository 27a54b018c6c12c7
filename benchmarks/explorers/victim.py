"""A learner that is attacked, in a process of its own: `python -m benchmarks.explorers.victim JOB`.

The job says whether explorers are reached by a Unix socket or over TLS, how many messages are sent, and a seed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks.explorers.runs import SLOW, agent_of, digest, explorers
from benchmarks.speed.run import Failed, last_line
from benchmarks.venvs import XAGENTS
from xagents.explorers.keys import make_key

EXPLORERS = 4
# iterations before the attack, which take the memory that honest messages take
ITERATIONS = 30
SETTINGS = {'n_envs': 8, 'n_steps': 16, 'normalize_obs': True}
KEY = 'key.pem'
# an iteration takes a tenth of a second; an explorer that is silent is given up after a minute
PATIENCE = 150.0


@contextlib.contextmanager
def elsewhere(way: str) -> Iterator[dict[str, Any]]:
    """Yield the options of a run whose explorers are reached in a way; those of a cluster are begun here."""
    if way == 'unix':
        yield {'explorers': EXPLORERS}
        return
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        address = f'127.0.0.1:{free.getsockname()[1]}'
    make_key(KEY)
    words = [*XAGENTS, 'explore', address, '--explorers', str(EXPLORERS), '--cluster-key', KEY]
    machine = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        yield {'explorers': EXPLORERS, 'cluster': address, 'cluster_key': KEY}
        machine.wait(30)
    finally:
        machine.kill()
        machine.wait()


def begin_attack(job: dict[str, Any], options: dict[str, Any], progress: Path) -> subprocess.Popen:
    """Begin to attack the learner in this process."""
    address = options.get('cluster') or next(explorers()).cmdline()[-2]
    told = {'address': address, 'key': KEY if 'cluster' in options else None, 'messages': job['messages']}
    told |= {'seed': job['seed'], 'root': os.getpid(), 'progress': str(progress)}
    words = [sys.executable, '-m', 'benchmarks.explorers.attack', json.dumps(told)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def end_where_it_stands(moments: list[float], ended: threading.Event) -> None:
    """End this process where the run, of whose iterations these are the times, has not gone on for long."""
    while not ended.wait(1):
        if moments and time.monotonic() - moments[-1] > PATIENCE:
            print(f'the learner stood still for {PATIENCE:.0f} s', file=sys.stderr, flush=True)
            os._exit(1)


def attacked(job: dict[str, Any]) -> dict[str, Any]:
    """Train for as long as the attack lasts; return what the run has come to, and by how much memory grew."""
    progress, memory, moments, own = Path('progress'), [], [], psutil.Process()
    attack: subprocess.Popen | None = None
    ended = threading.Event()
    threading.Thread(target=end_where_it_stands, args=(moments, ended), daemon=True).start()
    with elsewhere(job['way']) as options, agent_of(SLOW, job['seed'], **SETTINGS) as agent:
        stream = agent.train_iter(max_steps=10**9, **options)
        try:
            for iteration, _ in enumerate(stream):
                with progress.open('ab') as file:
                    file.write(b'.')
                memory.append(own.memory_info().rss)
                moments.append(time.monotonic())
                if iteration == ITERATIONS:
                    attack = begin_attack(job, options, progress)
                if attack is not None and attack.poll() is not None:
                    break
            ended.set()
            result = {'digest': digest(agent), 'steps': agent.steps}
            stream.close()
        finally:
            if attack is not None:
                attack.kill()
    assert attack is not None
    if attack.returncode:
        raise Failed('the attack has failed')
    output, _ = attack.communicate()
    growth = (max(memory) - max(memory[: ITERATIONS + 1])) / 1e6
    longest = max(b - a for a, b in itertools.pairwise(moments[ITERATIONS:]))
    return {**result, 'growth': growth, 'longest': longest, **last_line(output)}


def left_alone(seed: int, steps: int) -> str:
    """Return what the same run comes to by itself: the environment is the same, without its sleep."""
    with agent_of('CartPole-v1', seed, **SETTINGS) as agent:
        agent.fit(max_steps=steps)
        return digest(agent)


def main() -> None:
    """Do the job, and print what became of it."""
    job = json.loads(sys.argv[1])
    result = attacked(job)
    equal = left_alone(job['seed'], result['steps']) == result['digest']
    print(json.dumps({'event': 'result', **result, 'equal': equal}), flush=True)


if __name__ == '__main__':
    main()
