"""The learner beside explorers that say what they like: nothing breaks it, and nothing makes it wait for ever."""

import queue
from types import SimpleNamespace

import numpy as np
import pytest

from xagents.collecting.explorer import Order, Tally
from xagents.collecting.statistics import Statistics
from xagents.collecting.streams import Streams
from xagents.explorers.fleet import Fleet
from xagents.explorers.messages import FORMAT, pack, unpack
from xagents.explorers.slots import Event, ExplorerError
from xagents.networks.acting import Published
from xagents.version import __version__

T, N = 3, 2


class FakeLink:
    """Notes what is sent; when it is cut, its end is an event."""

    def __init__(self, events):
        self.events, self.sent, self.pid, self.cuts, self.shared = events, [], None, 0, []
        self.extra = False

    def send(self, data, share=None):
        self.sent.append(unpack(data))
        self.shared.append(None if share is None else unpack(share))

    def taken(self): ...

    def cut(self):
        self.cuts += 1
        self.events.put(Event(self, None))

    def say(self, kind, header=(), arrays=None):
        self.events.put(Event(self, pack(kind, dict(header), arrays)))

    def hello(self, **others):
        self.say('hello', {'format': FORMAT, 'xagents': __version__, 'pid': 1, **others})


class Crew:
    last_words = ''

    def joined(self, link): ...
    def ended(self, source): ...
    def give_up(self, link): ...
    def lack(self, links, n): ...
    def refused(self, why): ...


def rollout():
    columns = {'actions': np.zeros((T, N), np.int32), 'rewards': np.zeros((T, N), np.float32)}
    flags = {name: np.zeros((T, N), bool) for name in ('terminated', 'truncated', 'valid')}
    return {'observations': np.zeros((T + 1, N, 4), np.float32), **columns, **flags}


def fragment(number=1, **others):
    arrays = rollout()
    arrays['valid'][:] = True
    seconds = {'env': 0.1, 'act': 0.1, 'busy': 0.2}
    header = {'number': number, 'episodes': [[1.0, 2, None, 0, 1, 0.1, None]], 'seconds': seconds, 'uncopied': ''}
    arrays |= others.pop('arrays', {})
    return {**header, **others}, arrays


@pytest.fixture
def fleet():
    events, crew, tally = queue.SimpleQueue(), Crew(), Tally()
    made = Fleet({}, N, 1, SimpleNamespace(observations=None), Streams(1), events, crew)
    made.reset(7)
    policy = SimpleNamespace(published=Published(1, np.zeros(3, np.float32)), warming_up=False, exploration=None)
    order = Order(policy, Statistics(), np.zeros((T, N)), {})
    return SimpleNamespace(
        events=events, crew=crew, tally=tally, made=made, fill=lambda: made.fill(rollout(), order, tally)
    )


def honest(fleet):
    """Let an explorer come that does what it is told, as far as it can be said beforehand."""
    link = FakeLink(fleet.events)
    link.hello()
    link.say('ready')
    link.say('fragment', *fragment())
    return link


def test_an_honest_explorer_is_heard(fleet):
    link = honest(fleet)
    fleet.fill()
    assert [message.kind for message in link.sent] == ['spec', 'order']
    assert link.sent[1].header['seed'] == 7 and fleet.tally.steps == T * N
    assert [(e.reward, e.length, e.step) for e in fleet.tally.episodes] == [(1.0, 2, 4)]


WRONG = [
    fragment(number=2),
    fragment(episodes=[[1.0, float('inf'), None, 0, 1, 0.1]]),
    fragment(episodes=[[1.0, 2, [1, 2], 0, 1, 0.1]]),
    fragment(episodes=[[1.0, 2, None, 9, 1, 0.1]]),
    fragment(episodes=[[1.0, 2, None, 0, -1, 0.1]]),
    fragment(episodes=7),
    fragment(seconds={'env': 10**400, 'act': 0, 'busy': 0}),
    fragment(seconds={'env': float('nan'), 'act': 0, 'busy': 0}),
    fragment(seconds=None),
    fragment(stand=[{}, {}]),
    fragment(stand=[{}], arrays={'stand/zzz': np.zeros(3, np.uint8)}),
    fragment(stand=[1, 2], arrays={'stand/0': np.zeros(3, np.uint8), 'stand/1': np.zeros(3, np.uint8)}),
    fragment(arrays={'exploration/x': np.zeros((N, 1), np.float32)}),
    fragment(arrays={'rewards': np.zeros((T, N))}),
    fragment(arrays={'rewards': np.zeros((T, 1), np.float32)}),
]


@pytest.mark.parametrize('wrong', WRONG, ids=range(len(WRONG)))
def test_a_wrong_fragment_ends_its_explorer_and_another_does_the_order_again(fleet, wrong):
    link, other = FakeLink(fleet.events), FakeLink(fleet.events)
    link.hello()
    link.say('ready')
    other.hello()
    link.say('fragment', *wrong)
    fleet.crew.ended = lambda source: (other.say('ready'), other.say('fragment', *fragment()))
    fleet.fill()
    assert link.cuts == 1 and not other.cuts
    assert [message.kind for message in other.sent] == ['spec', 'order']
    assert {'seed', 'number'} <= other.sent[1].header.keys() and 'weights' in other.shared[1].arrays


@pytest.mark.parametrize('kind', ['hello', 'ready', 'order', 'nonsense'])
def test_what_is_said_out_of_turn_ends_the_link(fleet, kind):
    link = FakeLink(fleet.events)
    link.hello()
    link.say('ready')
    link.say(kind, {'format': FORMAT, 'xagents': __version__, 'pid': 1})
    fleet.crew.ended = lambda source: honest(fleet)
    fleet.fill()
    assert link.cuts == 1


def test_bytes_that_are_no_message_end_the_link(fleet):
    link = FakeLink(fleet.events)
    fleet.events.put(Event(link, b'nothing'))
    honest(fleet)
    fleet.fill()
    assert link.cuts == 1


def test_another_version_is_told_and_let_go(fleet):
    link = FakeLink(fleet.events)
    link.hello(xagents='1.0')
    honest(fleet)
    fleet.fill()
    assert link.sent[0].kind == 'refused' and '1.0' in link.sent[0].header['why'] and link.cuts == 1


def test_an_order_that_fails_three_times_ends_the_run_with_its_line(fleet):
    link = FakeLink(fleet.events)
    link.hello()
    link.say('ready')
    for _ in range(3):
        link.say('error', {'why': 'the motor\nis \x1b[31mhot'})
    with pytest.raises(ExplorerError, match=r'3 times at the same order: the motor is  \[31mhot'):
        fleet.fill()
    assert [message.kind for message in link.sent] == ['spec', 'order', 'order', 'order']


def test_who_cannot_make_the_environments_is_let_go_and_others_stay(fleet):
    link, said = FakeLink(fleet.events), []
    fleet.crew.refused = said.append
    link.hello()
    link.say('error', {'why': 'no module named simulator'})
    honest(fleet)
    fleet.fill()
    assert [message.kind for message in link.sent] == ['spec', 'refused'] and link.cuts == 1
    assert said == ['no module named simulator'] and 'simulator' in link.sent[1].header['why']


def test_an_order_at_which_explorers_die_ends_the_run(fleet):
    fleet.crew.last_words = 'SIGSEGV'
    for _ in range(8):
        link = FakeLink(fleet.events)
        link.hello()
        link.say('ready')
        link.cut()
    with pytest.raises(ExplorerError, match=r'8 explorers have ended at the same order \(SIGSEGV\)'):
        fleet.fill()


def test_who_gives_signs_of_life_is_waited_for(fleet, monkeypatch):
    """Patience is for a step, not for a fragment; what came while nobody listened is no silence."""
    given_up, now = [], [0.0]
    fleet.crew.give_up = given_up.append
    monkeypatch.setattr('xagents.explorers.staff.time', SimpleNamespace(perf_counter=lambda: now[0]))
    link = FakeLink(fleet.events)
    link.hello()
    link.say('ready')
    taken = fleet.events.get

    def get(timeout=None):
        now[0] += 50.0
        if now[0] == 200.0:
            link.say('fragment', *fragment())
        elif now[0] < 200.0 and fleet.events.empty():
            link.say('alive')
        return taken(timeout=0)

    monkeypatch.setattr(fleet.made._staff, '_events', SimpleNamespace(get=get, empty=fleet.events.empty))
    fleet.fill()
    assert not given_up and now[0] >= 200.0


def test_who_comes_relieves_an_explorer_that_a_machine_has_begun_for_want_of_others(fleet):
    extra, fresh = FakeLink(fleet.events), FakeLink(fleet.events)
    extra.hello()
    extra.say('ready')
    extra.say('fragment', *fragment())
    fleet.fill()
    extra.extra = True
    fresh.hello()
    fleet.events.put(Event(fresh, b'nothing'))  # it is heard before the next order, and let go
    other = FakeLink(fleet.events)
    other.hello()
    extra.say('fragment', *fragment(2))
    fleet.fill()
    assert not extra.cuts and fresh.cuts == 1
    other.say('ready')
    other.say('fragment', *fragment(3))
    fleet.fill()
    assert extra.cuts == 1 and [message.kind for message in other.sent] == ['spec', 'order']
    assert {'seed', 'number'} <= other.sent[1].header.keys()


def test_environments_that_begin_anew_are_told(fleet):
    link, other = FakeLink(fleet.events), FakeLink(fleet.events)
    link.hello()
    link.say('ready')
    link.say('fragment', *fragment(uncopied='it holds a file'))
    fleet.fill()
    fleet.events.put(Event(link, None))
    other.hello()
    other.say('ready')
    other.say('fragment', *fragment(2, uncopied='it holds a file'))
    fleet.fill()
    said = 'An explorer was lost, and 2 environments began new episodes: they cannot be copied (it holds a file)'
    assert fleet.tally.messages == [said]
