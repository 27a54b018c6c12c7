"""What can be seen of a run while it goes on, and whether it is still right after a resume."""

import contextlib
import dataclasses
import json
import math
import time
from collections import deque
from types import SimpleNamespace

import imageio_ffmpeg
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xagents
from tests.commands import execute
from tests.environments import Counter
from tests.runs.test_stages import Stub, once, run_of, stream
from tests.small_agents import on_cartpole, weights
from xagents.envs.create import create_envs
from xagents.evaluation import playing, videos
from xagents.logs.console import Console, bottleneck, status_line
from xagents.logs.history import read_history
from xagents.logs.metrics import read_metrics
from xagents.options.errors import OptionError
from xagents.options.runs import RunOptions
from xagents.pipeline.context import Context, EpisodeEnd
from xagents.runs import reporting, saving
from xagents.runs.run import Run
from xagents.runs.saving import seconds_to_compare
from xagents.runs.stages import why_stop
from xagents.system.interruption import RunInterrupted


def objects(capsys):
    """What was printed: every line is an object."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


# JSON


def test_json_is_one_object_a_line_from_start_to_end(capsys):
    run = run_of(log_format='json', max_steps=100)
    run.agent.options = run.agent.options.changed(seed=7, lr=0.5)
    reporting.start(run)
    long = 'a line [bold]' + 'x' * 500  # neither wrapped nor taken for markup
    logs = {'mean_reward': math.nan, 'loss/value': np.float32(0.5), 'best_reward': -math.inf, 'event': 1.0}
    once(reporting.console, run, steps=32, checked=True, logs=logs, seconds=2.0, messages=[long], note='waiting')
    run.progress.context, run.stop_reason = Context(steps=32, mean_reward=3.0, seconds=2.5), 'steps'
    reporting.end(run)
    start, message, status, end = objects(capsys)
    options = start.pop('options')
    assert start == {'event': 'start', 'agent': 'stub', 'env': 'Stub-v0', 'seed': 7}
    assert (options['lr'], options['max_steps'], options['target_reward']) == (0.5, 100, None)
    assert message == {'event': 'message', 'text': long}
    assert status == {
        'event': 'status', 'mean_reward': None, 'loss/value': 0.5, 'best_reward': None, 'seconds': 2.0,
        'eta': None, 'note': 'waiting',
    }  # fmt: skip
    assert end == {
        'event': 'end', 'text': 'Maximum steps exceeded', 'why': 'steps', 'steps': 32, 'mean_reward': 3.0,
        'best_reward': None, 'seconds': 2.5,
    }  # fmt: skip


@pytest.mark.usefixtures('small_agents', 'folder')
def test_the_command_prints_nothing_but_objects():
    line = 'train small --env CartPole-v1 --n-envs 2 --n-steps 16 --max-steps 100 --log-format json'
    code, stdout, stderr = execute(*line.split())
    first, *between, last = map(json.loads, stdout.splitlines())
    assert (code, stderr) == (0, '')
    assert (first['event'], first['agent'], first['env']) == ('start', 'small', 'CartPole-v1')
    assert first['seed'] == first['options']['seed']
    assert (last['event'], last['why'], last['text']) == ('end', 'steps', 'Maximum steps exceeded')
    assert last['steps'] >= 100 and {e['event'] for e in between} <= {'message', 'status'}


# the status line and the bottleneck


def test_the_speed_of_a_resumed_run_is_that_of_this_session():
    run = run_of()
    run.progress.context = Context(steps=10**9)
    contexts = [Context(steps=10**9 + 10 * (i + 1)) for i in range(3)]
    list(stream(run, contexts, lambda ctx: time.sleep(0.01), reporting.metrics))
    assert all(0 < ctx.logs['steps_per_second'] < 2_000 for ctx in contexts)


def test_the_status_line_shows_the_most_important_values_that_fit():
    ctx = Context(steps=1234567, games=9876, seconds=3723.4, mean_reward=-1234.567, best_reward=-1240.0)
    ctx.logs['steps_per_second'] = 23456.7
    most = 'steps: 1234567, mean reward: -1234.57, 23457 steps/s'
    assert status_line(ctx, 2, 80, 61.2) == f'{most}, ETA 0:01:01'
    # a better mean than that of the last check is the best one
    assert status_line(ctx, 2, 140, 61.2) == f'{most}, ETA 0:01:01, best reward: -1234.57, games: 9876, time: 1:02:03'
    assert status_line(ctx, 2, 60) == most and status_line(ctx, 2, 10) == 'steps: 1234567'
    ctx.note = 'replay buffer: 5 of 10'
    assert status_line(ctx, 2, 60, 1) == 'steps: 1234567, replay buffer: 5 of 10, 23457 steps/s'


@pytest.mark.parametrize('options, done, eta', [
    ({'total': 1000}, 0.2, 8.0), ({'total': None}, None, None), ({'total': None, 'max_seconds': 8.0}, 0.5, 4.0),
    ({'total': 1000, 'max_seconds': 8.0}, 0.5, 4.0),
])  # fmt: skip
def test_the_remaining_time_is_that_until_the_first_end(options, done, eta):
    console = Console(quiet=False, **options)
    console._progress_of(Context(steps=100, seconds=3.0))  # of an earlier session
    assert console._progress_of(Context(steps=200, seconds=4.0)) == (done, eta)


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch):
    monkeypatch.setenv('FORCE_COLOR', '1')  # rich takes it for a terminal
    monkeypatch.setenv('TERM', 'xterm')
    assert Console(quiet=False).has_bar
    monkeypatch.setenv('TERM', 'dumb')
    assert not Console(quiet=False).has_bar


@pytest.mark.usefixtures('small_agents')
@pytest.mark.parametrize('sampled', [True, False])
def test_a_run_ends_with_at_most_eight_lines(sampled, monkeypatch, tmp_path, capsys):
    """The longest summary: two lines about speed, the comparison of weights, and the commands."""
    agent = on_cartpole(n_envs=2)
    monkeypatch.setattr(reporting, 'MIN_SECONDS_FOR_HINT', -1.0)
    monkeypatch.setattr(saving, '_play_greedily', lambda *arguments: -100.0 if sampled else 500.0)
    agent.fit(max_steps=2_000, run_dir=str(tmp_path / 'run'), quiet=False, final_episodes=10)
    lines = capsys.readouterr().out.splitlines()
    (begin,) = [i for i, line in enumerate(lines) if line.startswith('Greedy mean')]
    summary = lines[begin:]
    assert len(summary) == 8 and summary[-1] == 'Maximum steps exceeded', summary
    assert any('train --resume' in line for line in summary)
    assert any('--stochastic' in line for line in summary) == sampled


@pytest.mark.usefixtures('small_agents')
def test_the_final_evaluation_ends_at_max_time_and_training_leaves_time_for_it(monkeypatch, tmp_path, capsys):
    agent = on_cartpole(checkpoints=[str(tmp_path / 'a.tf')], quiet=False)
    run = agent.begin(max_time=100.0)
    run.episode_length = 50.0
    ctx = Context(seconds=79.0, logs={'steps_per_second': 100.0})
    assert seconds_to_compare(run, ctx) == 10 and not why_stop(run, ctx)  # 2 x 10 episodes of 50 steps
    assert why_stop(run, Context(seconds=91.0, logs=ctx.logs)) == 'time'
    assert seconds_to_compare(run, Context(logs={'steps_per_second': 1.0})) == 0, (
        'it would not end in a fifth of the time'
    )
    assert seconds_to_compare(run, Context()) == seconds_to_compare(run, Context(logs={'steps_per_second': 0.0})) == 0
    agent.fit(max_steps=600)
    ticks = iter(range(10**9))
    monkeypatch.setattr(saving.time, 'monotonic', lambda: next(ticks))
    agent.fit(max_steps=1200, max_time=agent.context.seconds + 30)
    shown = capsys.readouterr().out
    assert 'There was no time for the final evaluation (--max-time): the best weights stay' in shown


@pytest.mark.parametrize(
    'spent, said',
    [
        ({'env': 5.0, 'act': 1.0, 'learn': 3.0},
         'environments 50 %, acting 10 %, learning 30 %, the rest 10 %\nMost goes into environments: more --n-envs'),
        # env and act in a thread: with learning they are more than the time that went by
        ({'env': 6.0, 'act': 3.0, 'learn': 5.0, 'wait': 4.0},
         'learning 50 %, waiting 40 %, the rest 10 %; in parallel environments 60 %, acting 30 %\n'
         'Learning waits for collecting; most of that time goes into environments: more'),
        ({'env': 2.0, 'act': 3.0, 'replay': 1.0, 'learn': 8.0, 'wait': 0.1},
         'replaying 10 %, learning 80 %, waiting 1 %, the rest 9 %; in parallel environments 20 %, acting 30 %\n'
         'Collecting waits for learning; most of that time goes into learning: smaller'),
        ({'learn': 6.0, 'wait': 4.0}, 'learning 60 %, waiting 40 %, the rest 0 %\nLearning waits for '),
    ],
)  # fmt: skip
def test_the_bottleneck_is_named_with_and_without_overlap(spent, said):
    line = bottleneck(spent, 10.0)
    assert line.startswith(f'Time: {said}') and '--overlap' not in line
    assert bottleneck({}, 0.0) == ''


# rows of a resumed run


@given(st.lists(st.floats(-1e16, 1e16), min_size=1, max_size=60), st.integers(1, 20), st.data())
def test_the_mean_of_a_resumed_history_has_the_same_bits(rewards, size, data):
    cut = data.draw(st.integers(0, len(rewards)))
    whole, resumed = deque[float](maxlen=size), deque(rewards[:cut], maxlen=size)
    expected = [reporting.append_and_mean(whole, reward) for reward in rewards]
    assert [reporting.append_and_mean(resumed, reward) for reward in rewards[cut:]] == expected[cut:]
    assert expected == [
        math.fsum(w) / len(w) for w in (rewards[max(0, i - size) : i] for i in range(1, len(rewards) + 1))
    ]


def test_a_mean_of_both_infinities_is_none():
    last = deque([math.inf], maxlen=3)
    means = [reporting.append_and_mean(last, reward) for reward in (-math.inf, 1.0, 2.0)]
    assert math.isnan(means[0]) and math.isnan(means[1]) and means[2] == -math.inf


class Session:
    """Runs iterations of 10 steps with an episode each through a stage, like a run that may be resumed."""

    def __init__(self, stage, **options):
        self.agent, self.stage, self.options = Stub(), stage, options

    def run(self, first, last):
        """Run the iterations first..last; counters and rewards are those of an earlier one."""
        run, progress = run_of(self.agent, **self.options), self.agent.progress
        progress.resumed_at = None  # of the next run

        def contexts():
            for i in range(first, last + 1):
                progress.rewards.append(0.1 * i)
                episodes = [EpisodeEnd(0.1 * i, 10, 0, None, step=10 * i, time=1.0 * i)]
                logs = {'loss/x': i / 7, 'steps': 10 * i}
                progress.context = Context(iteration=i, steps=10 * i, seconds=1.0 * i, episodes=episodes, logs=logs)
                yield progress.context

        list(stream(run, contexts(), self.stage))

    def resume(self, at):
        """Become a process that resumed from the checkpoint of iteration `at`."""
        self.agent = Stub()
        progress = self.agent.progress
        progress.context, progress.resumed_at = Context(iteration=at, steps=10 * at, seconds=1.0 * at), 10 * at
        progress.rewards.extend(0.1 * i for i in range(max(1, at - 19), at + 1))


def test_a_resumed_history_is_that_of_a_run_that_never_stopped(tmp_path):
    whole = Session(reporting.history, run_dir=str(tmp_path / 'a'))
    halves = Session(reporting.history, run_dir=str(tmp_path / 'b'))
    for folder in 'ab':
        (tmp_path / folder).mkdir()
    whole.run(1, 60)
    halves.run(1, 33)
    halves.resume(30)
    halves.run(31, 45)
    halves.run(46, 60)  # fit again in the same process: nothing of the session before is cut
    pd.testing.assert_frame_equal(
        read_history(tmp_path / 'a' / 'history.parquet'),
        read_history(tmp_path / 'b' / 'history.parquet'),
        check_exact=True,
    )


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_its_files_anew(tmp_path):
    for stage in (reporting.history, reporting.write_metrics):
        session = Session(stage, run_dir=str(tmp_path))
        session.run(1, 5)
        session.resume(0)
        session.run(1, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ['history.parquet', 'metrics.parquet']
    assert read_history(tmp_path / 'history.parquet')['step'].tolist() == [10, 20]
    assert read_metrics(tmp_path / 'metrics.parquet')['steps'].max() == 20


@pytest.mark.parametrize('stage', [reporting.history, reporting.write_metrics, reporting.tensorboard])
def test_a_checkpoint_can_flush_what_was_written(tmp_path, stage):
    run = run_of(run_dir=str(tmp_path))

    def save(ctx):
        (writer,) = run.writers
        writer.flush()

    list(stream(run, [Context(steps=5, logs={'x': 1.0})], stage, save))
    run.writers[0].flush()  # closed by now


def test_metrics_of_a_resumed_run_stand_once_and_the_last_row_always(tmp_path, monkeypatch):
    session = Session(reporting.write_metrics, run_dir=str(tmp_path))
    path = tmp_path / 'metrics.parquet'
    session.run(1, 50)
    steps = read_metrics(path)['steps'].tolist()
    assert steps[0] == 10 and steps[-1] == 500 and len(steps) < 10, 'five rows a second, and the last one'
    monkeypatch.setattr(reporting, 'MONITOR_SECONDS', 0.0)
    session.resume(30)
    session.run(31, 40)
    session.run(41, 45)
    rows = read_metrics(path)
    assert [s for s in rows['steps'] if s > 300] == list(range(310, 460, 10))
    assert rows['steps'].is_monotonic_increasing and rows['steps'].is_unique
    assert rows['loss/x'].iloc[-1] == 45 / 7


def shown_steps(folder):
    """The steps that TensorBoard shows, by its own readers: the older one, and the one behind its pages."""
    from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator

    older = event_accumulator.EventAccumulator(str(folder)).Reload()
    newer = plugin_event_accumulator.EventAccumulator(str(folder)).Reload()
    steps = [event.step for event in older.Scalars('loss/x')]
    assert [event.step for event in newer.Tensors('loss/x')] == steps
    return steps


def test_tensorboard_shows_every_step_of_a_resumed_run_once(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, 'MONITOR_SECONDS', 0.0)
    session = Session(reporting.tensorboard, run_dir=str(tmp_path))
    folder = tmp_path / 'tensorboard'
    session.run(1, 40)
    assert shown_steps(folder) == list(range(10, 410, 10))
    session.resume(30)
    session.run(31, 35)  # all in the same second: the order of the files is not that of the clock alone
    assert shown_steps(folder) == list(range(10, 360, 10))
    session.run(36, 45)
    assert shown_steps(folder) == list(range(10, 460, 10)), 'going on in the same process hides nothing'
    session.resume(20)
    session.run(21, 22)
    assert shown_steps(folder) == list(range(10, 230, 10))


# videos


@pytest.fixture(scope='module')
def trained(tmp_path_factory, small_agents):
    """Weights after 200 steps without videos, and those and the videos of the same run with them."""
    folder = tmp_path_factory.mktemp('filmed') / 'run'
    plain, filmed = (on_cartpole(n_envs=2, n_steps=16) for _ in range(2))
    with contextlib.closing(plain), contextlib.closing(filmed):
        plain.fit(max_steps=200)
        given = {'video_frequency': 60, 'run_dir': str(folder), 'final_episodes': 0}
        steps = [int(log['steps']) for log in filmed.train_iter(max_steps=200, **given)]
        both = [weights(agent) for agent in (plain, filmed)]
        yield SimpleNamespace(weights=both, steps=steps, folder=folder / 'videos', agent=filmed)


def film(agent, folder, **fields):
    """A run of an agent that films into another folder, and resumed where the fields say."""
    run = Run(agent, RunOptions(video_frequency=60, run_dir=str(folder)))
    run.progress = dataclasses.replace(agent.progress, context=Context(**fields))
    return run


def test_videos_change_nothing_of_the_training(trained):
    assert trained.weights[0] == trained.weights[1]


def test_a_video_is_made_whenever_the_steps_pass_a_multiple(trained):
    passed = [b for a, b in zip([0, *trained.steps], trained.steps, strict=False) if b // 60 > a // 60]
    names = sorted(path.name for path in trained.folder.iterdir())
    assert names == [f'step-{steps:012d}.mp4' for steps in passed] and len(names) == 3


def test_a_video_shows_a_greedy_episode(trained, tmp_path, monkeypatch):
    agent, steps = trained.agent, trained.steps[-1]
    run = film(agent, tmp_path)
    path = videos.record_video(run, steps)
    assert path == tmp_path / 'videos' / f'step-{steps:012d}.mp4'
    player = playing.evaluation_collector(agent, agent.envs.recreate(1))
    _, length = playing.play_episode(player, agent.streams.derive_seed('evaluate', steps))
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
    assert frames == length + 1
    first = path.read_bytes()
    assert videos.record_video(run, steps).read_bytes() == first, 'the same weights and steps make the same video'
    monkeypatch.setattr(videos, 'MAX_VIDEO_STEPS', 5)
    assert imageio_ffmpeg.count_frames_and_secs(str(videos.record_video(run, 1)))[0] == 6


def test_an_interrupted_video_leaves_nothing_and_is_made_by_the_run_that_resumes(trained, tmp_path, monkeypatch):
    folder, frames = tmp_path / 'videos', iter(range(3))

    def check():
        if next(frames, None) is None:
            raise RunInterrupted

    with monkeypatch.context() as patch:
        patch.setattr(playing.Interruption, 'check', check)
        once(videos.video, film(trained.agent, tmp_path, steps=150), steps=190)
    assert list(folder.iterdir()) == []
    run, times = film(trained.agent, tmp_path, steps=190), set()
    run.resumed_at = 190
    for _ in range(2):  # what is there is not made again
        once(videos.video, run, steps=200)
        (made,) = folder.iterdir()
        times.add(made.stat().st_mtime_ns)
    assert made.name == 'step-000000000190.mp4' and len(times) == 1


class Blind(Counter):
    """Says that it draws, and does not."""

    def render(self):
        return None


@pytest.mark.parametrize(
    'envs, reason',
    [
        (lambda: create_envs(Blind, 1), 'video_frequency: .* draws no pictures'),
        (lambda: Blind(), 'video_frequency: Blind cannot be created again'),
    ],
)
@pytest.mark.usefixtures('small_agents')
def test_what_cannot_be_drawn_is_refused_before_the_run(envs, reason, tmp_path):
    agent = xagents.make('small', envs(), net=[4])
    with pytest.raises(OptionError, match=reason) as error:
        agent.fit(max_steps=100, video_frequency=10, run_dir=str(tmp_path / 'run'))
    assert '\n' not in str(error.value) and not agent.collector._evaluation_envs and list(tmp_path.iterdir()) == []


def test_videos_need_a_run_folder(trained, folder):
    problem = 'got 60, which requires --run-dir'
    line = 'train ppo --env CartPole-v1 --max-steps 200 --video-frequency 60 --run-dir none'
    assert execute(*line.split()) == (2, '', f'xagents train: --video-frequency: {problem}\n')
    with pytest.raises(OptionError) as error:
        trained.agent.fit(max_steps=400, video_frequency=60)
    assert str(error.value) == f'video_frequency: {problem}' and list(folder.iterdir()) == []
