"""The learner beside explorers that say what they like: nothing breaks it, and nothing makes it wait for ever."""

import queue
import time
from types import SimpleNamespace

import numpy as np
import pytest

from xagents.collecting.env_stepper import CollectRequest, CollectStats
from xagents.collecting.random_streams import RandomStreams
from xagents.collecting.statistics import Statistics
from xagents.explorers import membership
from xagents.explorers.assignments import Event, ExplorerError
from xagents.explorers.messages import FORMAT, pack, unpack
from xagents.explorers.worker_pool import WorkerPool
from xagents.networks.acting import PublishedWeights
from xagents.system.interruption import RunInterrupted
from xagents.version import __version__

T, N = 3, 2
SPEC = {'policies': {'': {'agents_per_env': 1}}}


class FakeLink:
    """Notes what is sent; when it is cut, its end is an event."""

    def __init__(self, events):
        self.events, self.sent, self.pid, self.cuts, self.shared = events, [], None, 0, []
        self.has_extra_workers = False

    def send(self, data, broadcast=None):
        self.sent.append(unpack(data))
        self.shared.append(None if broadcast is None else unpack(broadcast))

    def acknowledge(self): ...

    def disconnect(self):
        self.cuts += 1
        self.events.put(Event(self, None))

    def say(self, kind, header=(), arrays=None):
        self.events.put(Event(self, pack(kind, dict(header), arrays)))

    def hello(self, **others):
        self.say('hello', {'format': FORMAT, 'xagents': __version__, 'pid': 1, **others})


class Launcher:
    last_exit_reason = ''

    def on_connect(self, link): ...
    def on_exit(self, source): ...
    def terminate(self, link): ...
    def on_shortage(self, links, n): ...
    def on_refusal(self, why): ...


def rollout():
    columns = {'actions': np.zeros((T, N), np.int32), 'rewards': np.zeros((T, N), np.float32)}
    flags = {name: np.zeros((T, N), bool) for name in ('terminated', 'truncated', 'valid')}
    return {'observations': np.zeros((T + 1, N, 4), np.float32), **columns, **flags}


def fragment(number=1, **others):
    arrays = rollout()
    arrays['valid'][:] = True
    seconds = {'env': 0.1, 'act': 0.1, 'busy': 0.2}
    header = {
        'number': number,
        'episodes': [[1.0, 2, None, 0, 1, 0.1, None, None, None]],
        'seconds': seconds,
        'uncopied': '',
    }
    arrays |= others.pop('arrays', {})
    return {**header, **others}, arrays


@pytest.fixture
def pool():
    events, launcher, stats = queue.SimpleQueue(), Launcher(), CollectStats()
    made = WorkerPool(SPEC, N, 1, SimpleNamespace(row_states=None), {'': RandomStreams(1)}, events, launcher)
    made.reset(7)
    policy = SimpleNamespace(
        published_weights=PublishedWeights(1, np.zeros(3, np.float32)), warming_up=False, exploration=None
    )
    order = CollectRequest(policy, Statistics(), np.zeros((T, N)), {})
    return SimpleNamespace(
        events=events, launcher=launcher, stats=stats, made=made, fill=lambda: made.fill([rollout()], [order], stats)[0]
    )


def honest(pool):
    """Let an explorer come that does what it is told, as far as it can be said beforehand."""
    link = FakeLink(pool.events)
    link.hello()
    link.say('ready')
    link.say('fragment', *fragment())
    return link


def test_an_honest_explorer_is_heard(pool):
    link = honest(pool)
    pool.fill()
    assert [message.message_type for message in link.sent] == ['spec', 'order']
    assert link.sent[1].header['seed'] == 7 and pool.stats.steps == T * N
    assert [(e.reward, e.length, e.step) for e in pool.stats.episodes] == [(1.0, 2, 4)]


def test_a_missing_explorer_is_not_waited_for_longer_than_max_time(pool, monkeypatch):
    monkeypatch.setattr(membership, 'CHECK_SECONDS', 0.01)
    pool.stats.deadline = time.perf_counter() + 0.05
    with pytest.raises(RunInterrupted) as interruption:
        pool.fill()
    assert interruption.value.reason == 'time'
    pool.stats.deadline = 0.0  # a rollout that explorers collect is finished
    honest(pool)
    pool.events.put(Event(FakeLink(pool.events), None))
    pool.fill()


WRONG = [
    fragment(number=2),
    fragment(episodes=[[1.0, float('inf'), None, 0, 1, 0.1]]),
    fragment(episodes=[[1.0, 2, [1, 2], 0, 1, 0.1]]),
    fragment(episodes=[[1.0, 2, None, 9, 1, 0.1]]),
    fragment(episodes=[[1.0, 2, None, 0, -1, 0.1]]),
    fragment(episodes=[[1.0, 2, None, 0, 1, 0.1, None, None, {'cost': 'a'}]]),
    fragment(episodes=[[1.0, 2, None, 0, 1, 0.1, None, None, 7]]),
    fragment(seen_infos=7),
    fragment(episodes=7),
    fragment(seconds={'env': 10**400, 'act': 0, 'busy': 0}),
    fragment(seconds={'env': float('nan'), 'act': 0, 'busy': 0}),
    fragment(seconds=None),
    fragment(env_state=[{}, {}]),
    fragment(env_state=[{}], arrays={'env_state/zzz': np.zeros(3, np.uint8)}),
    fragment(env_state=[1, 2], arrays={'env_state/0': np.zeros(3, np.uint8), 'env_state/1': np.zeros(3, np.uint8)}),
    fragment(arrays={'exploration/x': np.zeros((N, 1), np.float32)}),
    fragment(arrays={'rewards': np.zeros((T, N))}),
    fragment(arrays={'rewards': np.zeros((T, 1), np.float32)}),
]


@pytest.mark.parametrize('wrong', WRONG, ids=range(len(WRONG)))
def test_a_wrong_fragment_ends_its_explorer_and_another_does_the_order_again(pool, wrong):
    link, other = FakeLink(pool.events), FakeLink(pool.events)
    link.hello()
    link.say('ready')
    other.hello()
    link.say('fragment', *wrong)
    pool.launcher.on_exit = lambda source: (other.say('ready'), other.say('fragment', *fragment()))
    pool.fill()
    assert link.cuts == 1 and not other.cuts
    assert [message.message_type for message in other.sent] == ['spec', 'order']
    assert {'seed', 'number'} <= other.sent[1].header.keys() and 'weights' in other.shared[1].arrays


@pytest.mark.parametrize('kind', ['hello', 'ready', 'order', 'nonsense'])
def test_what_is_said_out_of_turn_ends_the_link(pool, kind):
    link = FakeLink(pool.events)
    link.hello()
    link.say('ready')
    link.say(kind, {'format': FORMAT, 'xagents': __version__, 'pid': 1})
    pool.launcher.on_exit = lambda source: honest(pool)
    pool.fill()
    assert link.cuts == 1


def test_bytes_that_are_no_message_end_the_link(pool):
    link = FakeLink(pool.events)
    pool.events.put(Event(link, b'nothing'))
    honest(pool)
    pool.fill()
    assert link.cuts == 1


def test_another_version_is_told_and_let_go(pool):
    link = FakeLink(pool.events)
    link.hello(xagents='1.0')
    honest(pool)
    pool.fill()
    assert link.sent[0].message_type == 'refused' and '1.0' in link.sent[0].header['why'] and link.cuts == 1


def test_what_another_version_is_said_to_be_is_printed_escaped(pool):
    other = FakeLink(pool.events)
    other.hello(xagents='1.0\x1b[2J\nDone')
    honest(pool)
    pool.fill()
    (refusal,) = [message.header['why'] for message in other.sent if message.message_type == 'refused']
    assert refusal.isprintable() and r"'1.0\x1b[2J\nDone'" in refusal


def test_an_order_that_fails_three_times_ends_the_run_with_its_line(pool):
    link = FakeLink(pool.events)
    link.hello()
    link.say('ready')
    for _ in range(3):
        link.say('error', {'why': 'the motor\nis \x1b[31mhot'})
    with pytest.raises(ExplorerError, match=r'3 times at the same task: the motor is  \[31mhot'):
        pool.fill()
    assert [message.message_type for message in link.sent] == ['spec', 'order', 'order', 'order']


def test_who_cannot_make_the_environments_is_let_go_and_others_stay(pool):
    link, said = FakeLink(pool.events), []
    pool.launcher.on_refusal = said.append
    link.hello()
    link.say('error', {'why': 'no module named simulator'})
    honest(pool)
    pool.fill()
    assert [message.message_type for message in link.sent] == ['spec', 'refused'] and link.cuts == 1
    assert said == ['no module named simulator'] and 'simulator' in link.sent[1].header['why']


def test_an_order_at_which_explorers_die_ends_the_run(pool):
    pool.launcher.last_exit_reason = 'SIGSEGV'
    for _ in range(8):
        link = FakeLink(pool.events)
        link.hello()
        link.say('ready')
        link.disconnect()
    with pytest.raises(ExplorerError, match=r'8 explorers ended during the same task \(SIGSEGV\)'):
        pool.fill()


def test_who_gives_signs_of_life_is_waited_for(pool, monkeypatch):
    """Patience is for a step, not for a fragment; what came while nobody listened is no silence."""
    given_up, now = [], [0.0]
    pool.launcher.terminate = given_up.append
    monkeypatch.setattr('xagents.explorers.membership.time', SimpleNamespace(perf_counter=lambda: now[0]))
    link = FakeLink(pool.events)
    link.hello()
    link.say('ready')
    taken = pool.events.get

    def get(timeout=None):
        now[0] += 50.0
        if now[0] == 200.0:
            link.say('fragment', *fragment())
        elif now[0] < 200.0 and pool.events.empty():
            link.say('alive')
        return taken(timeout=0)

    monkeypatch.setattr(pool.made._membership, '_events', SimpleNamespace(get=get, empty=pool.events.empty))
    pool.fill()
    assert not given_up and now[0] >= 200.0


def test_who_comes_relieves_an_explorer_that_a_machine_has_begun_for_want_of_others(pool):
    extra, fresh = FakeLink(pool.events), FakeLink(pool.events)
    extra.hello()
    extra.say('ready')
    extra.say('fragment', *fragment())
    pool.fill()
    extra.has_extra_workers = True
    fresh.hello()
    pool.events.put(Event(fresh, b'nothing'))  # it is heard before the next order, and let go
    other = FakeLink(pool.events)
    other.hello()
    extra.say('fragment', *fragment(2))
    pool.fill()
    assert not extra.cuts and fresh.cuts == 1
    other.say('ready')
    other.say('fragment', *fragment(3))
    pool.fill()
    assert extra.cuts == 1 and [message.message_type for message in other.sent] == ['spec', 'order']
    assert {'seed', 'number'} <= other.sent[1].header.keys()


def test_environments_that_begin_anew_are_told(pool):
    link, other = FakeLink(pool.events), FakeLink(pool.events)
    link.hello()
    link.say('ready')
    link.say('fragment', *fragment(uncopied='it holds a file'))
    pool.fill()
    pool.events.put(Event(link, None))
    other.hello()
    other.say('ready')
    other.say('fragment', *fragment(2, uncopied='it holds a file'))
    pool.fill()
    said = 'An explorer was lost, and 2 environments began new episodes: they cannot be copied (it holds a file)'
    assert pool.stats.messages == [said]
