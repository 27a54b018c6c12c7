"""Replay buffers on disk against copies in memory that were never saved."""

import itertools
import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.replay.test_replay import GO, REPEAT, SHIFT, TERMINATE, TRUNCATE, UNSEEN, History, collect
from xagents.options.errors import OptionError
from xagents.replay import segments as module
from xagents.replay.rollouts import RolloutBuffer
from xagents.replay.segments import SegmentStore
from xagents.replay.transitions import ReplayBuffer

T = 3


class Source:
    """Environments whose transitions have what a buffer takes; an addition goes on from the last one or not."""

    def __init__(self, n_envs, stack):
        frames = itertools.count(1)
        self.histories = [History(frames, stack, UNSEEN) for _ in range(n_envs)]

    def batch(self, rng, steps):
        for history in self.histories:
            if rng.random() < 0.1:
                history.reset_from_outside(rng.choice([REPEAT, UNSEEN]))
        shape = (steps, len(self.histories))
        events = rng.choice([GO] * 5 + [TERMINATE, TRUNCATE], size=shape)
        batch = collect(self.histories, events, rng.choice([REPEAT, SHIFT, UNSEEN], size=shape), continuous=False)
        return batch | {'logits': rng.random((*shape, 2), dtype=np.float32)}


def replay_buffer(size, stack, alpha):
    return ReplayBuffer(size, 1, batch_size=1, n_step=2, gamma=0.5, stack=stack, alpha=alpha)


def rollout_buffer(size, stack, _):
    return RolloutBuffer(size + 3 * T, 1, n_steps=T, stack=stack)


def draw(buffer, seed):
    """Return what an equal generator draws; set the priorities of what was drawn."""
    rng = np.random.default_rng(seed)
    if isinstance(buffer, RolloutBuffer):
        return buffer.sample(rng) if buffer.rollouts else {}
    drawn = buffer.sample(5, rng) if len(buffer) else {}
    if 'rows' in drawn:
        buffer.prioritize(drawn['rows'], rng.exponential(size=drawn['rows'].shape))
    return {name: array.copy() for name, array in drawn.items()}


VIEWS = ('arrays', 'flat', 'priorities', '_unknown')


def insides(buffer):
    """All that a buffer's ring is made of, as bytes."""
    ring = buffer.ring
    if ring is None or not ring.position:
        return {}
    tree = vars(ring.priorities) if ring.priorities else {}
    arrays = {**ring.arrays, **{f'tree/{name}': array for name, array in tree.items()}, 'unknown': ring._unknown}
    rest = {name: value for name, value in vars(ring).items() if name not in VIEWS}
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()} | rest


def check_same(one, other, seed=0):
    assert insides(one) == insides(other)
    assert (len(one), one.stored, one.ready, one.required_size) == (
        len(other),
        other.stored,
        other.ready,
        other.required_size,
    )
    drawn = [{name: array.tobytes() for name, array in draw(buffer, seed).items()} for buffer in (one, other)]
    assert drawn[0] == drawn[1]


def through_files(arrays, record):
    """What a checkpoint gives back: the record went through JSON, and the arrays are its own."""
    return {name: array.copy() for name, array in arrays.items()}, json.loads(json.dumps(record))


def files(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


ADD, DRAW, SAVE, COMMIT, KILL, PRUNE = 'add', 'draw', 'save', 'commit', 'kill', 'prune'
EVENTS = st.sampled_from([ADD] * 4 + [DRAW, SAVE, COMMIT, COMMIT, KILL, PRUNE])


def never_interrupted(buffer, happened):
    """Let all that happened to another buffer, additions and draws, happen to an empty one."""
    for what in happened:
        buffer.add(what) if isinstance(what, dict) else draw(buffer, what)
    return buffer


@settings(deadline=None, max_examples=80)
@given(
    plan=st.lists(st.tuples(EVENTS, st.integers(0, 99))),
    make=st.sampled_from([replay_buffer, replay_buffer, rollout_buffer]),
    n_envs=st.integers(1, 3),
    stack=st.sampled_from([1, 3]),
    size=st.integers(3, 30),
    alpha=st.sampled_from([None, 0.6]),
    merged_bytes=st.sampled_from([0, 300, 4_000_000]),
)
def test_a_buffer_goes_on_as_if_nobody_had_been_killed(
    tmp_path_factory, plan, make, n_envs, stack, size, alpha, merged_bytes
):
    folder = tmp_path_factory.mktemp('run') / 'replay'
    source, size = Source(n_envs, stack), max(size, T * n_envs)

    def empty():
        return make(size, stack, alpha)

    buffer, segments = empty(), SegmentStore(folder)
    happened = []  # to the buffer: what was added, and with which generators was drawn
    kept = []  # of each checkpoint, what it holds and what had happened
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, 'MERGED_BYTES', merged_bytes)
        for what, number in plan:
            rng = np.random.default_rng(number)
            if what == ADD:
                happened.append(source.batch(rng, T if make is rollout_buffer else int(rng.choice([1, 2, 5, 20]))))
                buffer.add(happened[-1])
            elif what == DRAW:
                happened.append(number)
                draw(buffer, number)
            elif what == SAVE:  # and the process is killed, or the disk is full, before the checkpoint is whole
                segments.save(buffer)
            elif what == COMMIT:
                kept.append((through_files(*segments.save(buffer)), [*happened]))
            elif what == KILL and kept:
                (arrays, record), happened = kept[number % len(kept)]
                happened, buffer, segments = [*happened], empty(), SegmentStore(folder)
                segments.load(buffer, arrays, record)
            elif what == PRUNE:
                del kept[: number % (len(kept) + 1)]
                segments.prune([record for (_, record), _ in kept])
    kept.append((through_files(*segments.save(buffer)), [*happened]))
    check_same(buffer, never_interrupted(empty(), happened))
    for (arrays, record), before in kept:
        loaded = empty()
        SegmentStore(folder).load(loaded, arrays, record)
        check_same(loaded, never_interrupted(empty(), before))


def filled(adds, size=60, steps=5, **options):
    buffer, source, rng = ReplayBuffer(size, 1, batch_size=4, **options), Source(2, 1), np.random.default_rng(0)
    for _ in range(adds):
        buffer.add(source.batch(rng, steps))
    return buffer, lambda steps: buffer.add(source.batch(rng, steps))


def loaded(folder, saved, size=60, **options):
    buffer = ReplayBuffer(size, 1, batch_size=4, **options)
    SegmentStore(folder).load(buffer, *through_files(*saved))
    return buffer


def test_each_row_is_written_once_and_what_is_overwritten_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(module, 'MERGED_BYTES', 0)
    buffer, add = filled(0)  # a ring of 31 rows
    segments, spans = SegmentStore(tmp_path), []
    for steps in (5, 5, 7, 1, 20, 4, 100):
        add(steps)
        saved = segments.save(buffer)
        spans.append([tuple(span[:3]) for span in saved[1]['segments']])
        segments.prune([saved[1]])
        assert files(tmp_path) == sorted(f'{number}.npz' for number, *_ in spans[-1])
        check_same(loaded(tmp_path, saved), buffer)
    assert spans[:4] == [
        [(1, 0, 6)],
        [(1, 0, 6), (2, 5, 11)],
        [(1, 0, 6), (2, 5, 11), (3, 10, 18)],
        [(1, 0, 6), (2, 5, 11), (3, 10, 18), (4, 17, 19)],
    ]
    assert spans[4] == [(2, 5, 11), (3, 10, 18), (4, 17, 19), (5, 18, 39)], 'rows 8 to 38 are held'
    assert spans[5] == [(3, 10, 18), (4, 17, 19), (5, 18, 39), (6, 38, 43)], 'rows 12 to 42'
    assert spans[6] == [(7, 112, 143)], 'more than the ring holds came at once: all of it, once'


def test_what_did_not_change_is_not_written(tmp_path):
    folder = tmp_path / 'made' / 'when needed'
    segments, empty = SegmentStore(folder), ReplayBuffer(60, 1, batch_size=4)
    saved = segments.save(empty)
    assert not folder.exists() and saved == ({}, {'segments': []})
    segments.prune([saved[1]])
    check_same(loaded(folder, saved), empty)
    buffer, _ = filled(3, alpha=0.5)
    before = segments.save(buffer)
    assert draw(buffer, 0)  # and sets priorities
    after = segments.save(buffer)
    assert files(folder) == ['1.npz'] and after[1]['segments'] == before[1]['segments']
    check_same(loaded(folder, after, alpha=0.5), buffer)
    assert (before[0]['priorities'] != after[0]['priorities']).any(), 'arrays are copies'


def test_a_slow_run_has_few_segments_and_writes_no_row_often(tmp_path, monkeypatch):
    buffer, add = filled(1, size=2000, steps=1)
    segments, written = SegmentStore(tmp_path), 0
    for _ in range(100):
        *_, (_, first, stop, _) = segments.save(buffer)[1]['segments']
        written += stop - first
        segments.prune([])
        add(1)
    saved = segments.save(buffer)
    assert len(saved[1]['segments']) <= 8 and written < 9 * 100
    check_same(loaded(tmp_path, saved, size=2000), buffer)
    # only small segments are taken in
    monkeypatch.setattr(module, 'MERGED_BYTES', 20 * sum(array[0].nbytes for array in buffer.ring.arrays.values()))
    segments = SegmentStore(tmp_path / 'other')
    for _ in range(100):
        saved = segments.save(buffer)
        add(1)
    spans = saved[1]['segments']
    assert max(stop - first for _, first, stop, _ in spans[1:]) <= 21
    assert len(spans) <= 100 / 10 + 5


def test_rows_that_are_overwritten_are_not_taken_in(tmp_path):
    buffer, add = filled(0)  # a ring of 31 rows
    segments, merged = SegmentStore(tmp_path), 0
    for steps in (20, 10, 25, 16, 16, 1, 1, 30, 40, 3, 3, 3, 3, 25):
        add(steps)
        *_, (_, first, stop, _) = segments.save(buffer)[1]['segments']
        assert first >= buffer.ring.oldest and stop == buffer.ring.position + 1
        merged += stop - first > steps + 1
    assert merged > 3


def test_frames_are_compressed(tmp_path):
    buffer, batch = ReplayBuffer(200, 1, batch_size=4), Source(2, 1).batch(np.random.default_rng(0), 50)
    buffer.add(batch | {'observations': np.zeros((51, 2, 40, 40, 1), np.uint8)})
    SegmentStore(tmp_path).save(buffer)
    assert (tmp_path / '1.npz').stat().st_size < 5000 < buffer.ring.arrays['observations'].nbytes / 10


def test_a_number_is_not_used_again(tmp_path):
    buffer, add = filled(2)
    first = SegmentStore(tmp_path)
    one = first.save(buffer)
    add(30)
    first.save(buffer)  # of no checkpoint
    assert files(tmp_path) == ['1.npz', '2.npz']
    (tmp_path / '.3.npz.tmp').write_bytes(b'torn')
    (tmp_path / 'notes.txt').write_text('of somebody else')
    second, repeat = SegmentStore(tmp_path), ReplayBuffer(60, 1, batch_size=4)
    second.load(repeat, *through_files(*one))
    repeat.add(Source(2, 1).batch(np.random.default_rng(1), 2))
    three = second.save(repeat)
    assert [number for number, *_ in three[1]['segments']] == [1, 3]
    second.prune([three[1]])
    assert files(tmp_path) == ['1.npz', '3.npz', 'notes.txt']
    check_same(loaded(tmp_path, one), filled(2)[0])
    # the highest is deleted: this process goes on above it
    add(30)
    third = SegmentStore(tmp_path)
    third.prune([one[1]])
    assert files(tmp_path) == ['1.npz', 'notes.txt']
    third.save(buffer)
    assert files(tmp_path) == ['1.npz', '4.npz', 'notes.txt']
    # a new one cannot know, but a checkpoint that names the deleted one does not take another for it
    (tmp_path / '4.npz').rename(tmp_path / '3.npz')
    with pytest.raises(ValueError, match=r'3\.npz: not the file'):
        loaded(tmp_path, three)


def test_a_save_that_fails_is_made_up_for(tmp_path, monkeypatch):
    buffer, add = filled(2)
    segments = SegmentStore(tmp_path)
    before = segments.save(buffer)
    add(3)

    def full(descriptor):
        raise OSError(28, 'No space left on device')

    with monkeypatch.context() as patch, pytest.raises(OSError, match='No space'):
        patch.setattr(os, 'fsync', full)
        segments.save(buffer)
    assert files(tmp_path) == ['1.npz']
    check_same(loaded(tmp_path, before), filled(2)[0])
    add(4)
    segments.prune([])  # what the present buffer is made of stays
    check_same(loaded(tmp_path, segments.save(buffer)), buffer)


def test_torn_missing_and_changed_files_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(module, 'MERGED_BYTES', 0)
    buffer, add = filled(2)
    segments = SegmentStore(tmp_path)
    segments.save(buffer)
    add(3)
    saved = segments.save(buffer)
    path = tmp_path / '2.npz'
    whole, rng = path.read_bytes(), np.random.default_rng(0)

    def refused(content):
        path.write_bytes(content)
        with pytest.raises(ValueError) as error:
            loaded(tmp_path, saved)
        assert str(error.value).startswith(f'{path}: ') and '\n' not in str(error.value)

    for size in (*rng.integers(len(whole), size=15), 0, len(whole) - 1):
        refused(whole[:size])
        if any(whole[size:]):
            refused(whole[:size] + bytes(len(whole) - size))
    refused((tmp_path / '1.npz').read_bytes())
    refused(b'PK' + rng.bytes(len(whole)))
    harmless = 0
    for place in rng.integers(len(whole), size=150):
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.integers(8)
        path.write_bytes(changed)
        try:
            check_same(loaded(tmp_path, saved), buffer)  # such as a time
            harmless += 1
        except ValueError as error:
            assert str(error).startswith(f'{path}: ') and '\n' not in str(error)
    assert harmless < 75
    path.unlink()
    with pytest.raises(ValueError, match=r'2\.npz: .*, and there is no such file'):
        SegmentStore(tmp_path).load(other := ReplayBuffer(60, 1, batch_size=4), *saved)
    assert other.ring is None
    path.write_bytes(whole)
    check_same(loaded(tmp_path, saved), buffer)


def test_a_buffer_of_another_kind_is_refused(tmp_path):
    replay, _ = filled(20)
    rollouts = RolloutBuffer(60, n_steps=5)
    rollouts.add(Source(2, 1).batch(np.random.default_rng(0), 5))
    saved = {buffer: SegmentStore(tmp_path).save(buffer) for buffer in (replay, rollouts)}
    for source, other, message in (
        (replay, ReplayBuffer(80, batch_size=4), 'holds 60 transitions, this one 80 (buffer_max_size)'),
        (replay, ReplayBuffer(60, batch_size=4, alpha=0.5), 'has prioritized False, this one True'),
        (replay, ReplayBuffer(60, batch_size=4, stack=4), 'has frame_stack 1, this one 4'),
        (replay, RolloutBuffer(60, n_steps=5), 'has columns None, this one'),
        (rollouts, RolloutBuffer(60, n_steps=6), 'has n_steps 5, this one 6'),
        (rollouts, RolloutBuffer(80, n_steps=5), 'holds 60 transitions, this one 80'),
        (rollouts, RolloutBuffer(60, n_steps=5, columns=['logits', 'values']), "has columns ['logits'], this one"),
        (rollouts, RolloutBuffer(8, n_steps=5), 'buffer_max_size: got 8, expected at least 10'),
        (replay, filled(1)[0], 'already holds'),
    ):
        before = insides(other)
        with pytest.raises(ValueError) as error:
            SegmentStore(tmp_path).load(other, *saved[source])
        assert message in str(error.value) and '\n' not in str(error.value)
        assert insides(other) == before
    with pytest.raises(OptionError, match='expected at least 2'):
        SegmentStore(tmp_path).load(ReplayBuffer(1, batch_size=1), *saved[replay])
    wider = ReplayBuffer(61, batch_size=8, alpha=None, n_step=3)  # how it is drawn from may differ
    SegmentStore(tmp_path).load(wider, *saved[replay])
    assert insides(wider) == insides(replay)


def test_a_column_may_have_any_name(tmp_path):
    names = ['file', 'allow_pickle', 'newest', 'short']
    buffer, other = (RolloutBuffer(60, n_steps=5, columns=names) for _ in range(2))
    batch = Source(2, 1).batch(np.random.default_rng(0), 5)
    buffer.add(batch | dict.fromkeys(names, batch['logits']) | {'short': np.ones((5, 2), np.float16)})
    SegmentStore(tmp_path).load(other, *through_files(*SegmentStore(tmp_path).save(buffer)))
    check_same(other, buffer)
