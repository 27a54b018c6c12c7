# ruff: noqa: RUF009 -- option() makes a dataclass field, which is what stands there
"""The options that are not one agent's own, each declared once; loads nothing heavy."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from xagents.options import OptionError, Options, option


@dataclasses.dataclass
class EnvironmentOptions(Options):
    """Which environments, and how they are prepared."""

    env: str | None = option(
        None, "the environment: an id of Gymnasium's, module:Id, or gym:Id for the old gym", metavar='ID'
    )
    n_envs: int = option(
        1,
        'environments side by side; more give more varied data an update',
        at_least=1,
        at_most=16384,
        tune='categorical',
    )
    preprocess: bool | None = option(None, 'Atari preprocessing; recognised by the environment when not given')
    max_frame: bool = option(True, 'maximum of two frames (always on where frames are skipped)', tune='categorical')
    max_episode_steps: int | None = option(
        None, "time limit of an episode, instead of the environment's own; more let it last longer", at_least=1
    )
    env_kwargs: dict | None = option(None, 'arguments of the environment, as key=value …', metavar='KEY=VALUE')
    vector: str = option(
        'auto', 'how environments run side by side', choices=('auto', 'sync', 'async', 'envpool'), tune='categorical'
    )
    frame_stack: int = option(
        4, 'Atari frames in one observation; more show more of the past', at_least=1, tune='categorical'
    )
    clip_rewards: bool = option(True, 'Atari: learn from the sign of a reward')
    episodic_life: bool = option(True, 'Atari: a lost life ends an episode while training')
    fire_reset: bool = option(True, 'Atari: press FIRE after a reset, where the game has it')
    sticky_actions: bool = option(False, 'Atari: repeat the last action with probability 0.25')
    wrapper: list[str] | None = option(
        None, 'Gymnasium wrappers around each environment, as module:Class', metavar='MODULE:CLASS'
    )

    def creation(self) -> dict[str, Any]:
        """Return the keywords of `create_envs`."""
        keywords = self.asdict()
        return {**keywords, 'wrapper': keywords['wrapper'] or ()}


@dataclasses.dataclass
class NetworkOptions(Options):
    """A network without a file."""

    net: list[int] | None = option(
        None,
        'widths of a dense network, instead of a .cfg; larger can learn more and are slower',
        at_least=1,
        metavar='UNITS',
    )
    activation: str | None = option(
        None,
        'activation of --net',
        choices=('tanh', 'relu', 'elu', 'selu', 'gelu', 'silu', 'sigmoid'),
        tune='categorical',
    )
    shared_network: bool = option(False, 'one trunk for actor and critic, of agents whose network has both heads')


@dataclasses.dataclass
class AgentOptions(Options):
    """The mathematics that every agent shares."""

    gamma: float = option(
        0.99,
        'discount factor; larger looks further ahead, with more variance',
        at_least=0,
        at_most=1,
        tune='log_uniform',
    )
    lr: float = option(7e-4, 'learning rate; larger learns faster and less stably', above=0, tune='log_uniform')
    opt_epsilon: float = option(
        1e-7, "the optimizer's epsilon; larger damps small gradients", above=0, tune='log_uniform'
    )
    beta1: float = option(
        0.9,
        'Adam: decay of the mean gradient; larger averages over more updates',
        at_least=0,
        below=1,
        tune='log_uniform',
    )
    beta2: float = option(
        0.999,
        'Adam: decay of the mean squared gradient; larger averages over more updates',
        at_least=0,
        below=1,
        tune='log_uniform',
    )
    optimizer: str = option('adam', 'the optimizer', choices=('adam', 'rmsprop'), tune='categorical')
    lr_schedule: str = option(
        'constant', 'how the learning rate goes to 0', choices=('constant', 'linear', 'cosine'), tune='categorical'
    )
    schedule_steps: int | None = option(
        None, 'steps of the schedules, --max-steps when not given; more let them fall more slowly', at_least=1
    )
    normalize_obs: bool = option(
        False, 'normalise observations by their running mean and deviation', tune='categorical'
    )
    normalize_reward: bool = option(False, 'normalise rewards by the deviation of the return', tune='categorical')
    reward_scale: float = option(
        1.0, 'factor on the reward that is learned from; larger gives larger gradients', above=0, tune='log_uniform'
    )
    precision: str = option('float32', 'arithmetic of convolutional networks', choices=('float32', 'bfloat16'))
    reward_buffer_size: int = option(
        100, 'episodes in the mean reward; more make it steadier and older', at_least=1, at_most=10**9
    )
    seed: int | None = option(
        None, 'seed of everything random; drawn and printed when not given', at_least=0, at_most=2**32 - 1
    )


@dataclasses.dataclass
class OnPolicyOptions(AgentOptions):
    """What A2C, ACER, PPO and TRPO share: a stochastic policy that learns from rollouts."""

    n_steps: int = option(
        5,
        'steps an environment takes before an update; more give less bias and fewer updates',
        at_least=1,
        tune='categorical',
    )
    lam: float = option(
        1.0, 'GAE lambda; larger trusts rewards more than the critic', at_least=0, at_most=1, tune='log_uniform'
    )
    entropy_coef: float = option(
        0.01, 'weight of the entropy bonus; larger explores more', at_least=0, tune='log_uniform'
    )
    value_loss_coef: float = option(
        0.5, "weight of the critic's loss; larger favours it over the policy", at_least=0, tune='log_uniform'
    )
    grad_norm: float = option(0.5, 'largest gradient norm; larger allows larger updates', above=0, tune='log_uniform')
    normalize_advantage: bool = option(False, 'normalise advantages to mean 0 and deviation 1', tune='categorical')
    log_std_init: float = option(
        0.0,
        'initial log standard deviation of continuous actions; larger explores more',
        at_least=-20,
        at_most=5,
        tune='categorical',
    )


@dataclasses.dataclass
class ReplayOptions(AgentOptions):
    """What agents with a replay buffer share; sizes are totals over all environments."""

    buffer_max_size: int = option(
        10_000,
        'transitions the replay buffer holds; a larger one forgets later and takes more memory',
        at_least=1,
        tune='int',
    )
    buffer_initial_size: int | None = option(
        None,
        'transitions stored before learning starts, the largest size when not given; more start later and more varied',
        at_least=0,
        tune='int',
        aliases=('learning_starts',),
    )

    def check(self) -> None:
        """Check the sizes against each other."""
        self.check_size('buffer_initial_size')

    def check_size(self, name: str) -> None:
        """Check that a size is not above that of the buffer."""
        value, most = getattr(self, name), self.buffer_max_size
        if value is not None and value > most:
            raise OptionError(name, f'got {value}, admits at most the {most} of --buffer-max-size')


@dataclasses.dataclass
class OffPolicyOptions(ReplayOptions):
    """What DQN, DDPG and TD3 share."""

    buffer_batch_size: int = option(
        32,
        'transitions of one update; a larger batch makes updates slower and less noisy',
        at_least=1,
        tune='categorical',
    )
    train_frequency: int = option(
        1,
        'steps between trainings, over all environments, rounded up to whole steps of all; more train less often',
        at_least=1,
        tune='categorical',
    )
    gradient_steps: int = option(
        -1,
        'updates of a training, -1 for as many as steps were taken; more learn more from each step',
        at_least=-1,
        tune='int',
    )
    n_step: int = option(
        1,
        'steps whose rewards a target sums before it bootstraps; more spread rewards faster and less exactly',
        at_least=1,
        tune='int',
    )

    def check(self) -> None:
        """Check the options against each other."""
        super().check()
        self.check_size('buffer_batch_size')
        if self.gradient_steps == 0:
            raise OptionError('gradient_steps', 'got 0, admits -1 (as many as steps taken) or a whole number from 1')


@dataclasses.dataclass
class EndOptions(Options):
    """When a run ends and what measures it on the way: what only `train` takes."""

    target_reward: float | None = option(
        None, 'stop when the mean reward reaches it; larger trains longer', metavar='REWARD'
    )
    max_steps: int | None = option(
        None, 'stop after that many environment steps in total; more train longer', at_least=1, metavar='STEPS'
    )
    max_time: float | None = option(None, 'stop after that many seconds; more train longer', above=0, metavar='SECONDS')
    eval_frequency: int | None = option(
        None,
        'steps between evaluations, which then decide target, best and plateau; more evaluate less often',
        at_least=1,
        metavar='STEPS',
    )
    eval_episodes: int = option(10, 'greedy episodes of an evaluation; more give a surer mean', at_least=1)
    final_episodes: int = option(
        10, 'greedy episodes of best and last at the end of a run, 0 for none; more choose more surely', at_least=0
    )
    run_dir: str | None = option(
        None, 'folder that keeps everything of the run: settings, history, metrics, checkpoints, events', metavar='DIR'
    )
    save_seconds: float = option(
        10.0, 'least seconds between writings of checkpoints; more write less often', at_least=0
    )
    checkpoint_frequency: int | None = option(
        None,
        'steps between checkpoints of --run-dir that stay, beside best and last; more keep fewer',
        at_least=1,
        metavar='STEPS',
    )
    keep: int | None = option(
        None,
        'how many of the checkpoints of --checkpoint-frequency stay, all when not given; more fill the disk',
        at_least=1,
    )
    on_nan: str = option(
        'stop', 'at numbers that are not finite: stop the run, or skip what they would teach', choices=('stop', 'skip')
    )
    overlap: bool = option(False, 'collect in a thread, one iteration ahead of learning: faster on two cores')
    log_format: str = option('text', 'what the console shows: text, or a JSON object a line', choices=('text', 'json'))
    video_frequency: int | None = option(
        None, 'steps between videos of a greedy episode; more record less often', at_least=1, metavar='STEPS'
    )
    tensorboard: str | None = option(None, 'folder for TensorBoard events', metavar='DIR')
    monitor_session: str | None = option(None, 'name of a Weights & Biases run that gets every metric', metavar='NAME')


@dataclasses.dataclass
class RecordOptions(Options):
    """What every run keeps and says, a trial of `tune` too; 1.0 took these in every command."""

    checkpoints: list[str] | None = option(
        None, 'where the best weights are kept, one path a model: .tf, .weights.h5 or .keras', metavar='PATH'
    )
    history_checkpoint: str | None = option(None, 'one row an episode, a .parquet file', metavar='PATH')
    plateau_reduce_factor: float = option(
        0.9, 'factor on the learning rate on a plateau; larger reduces it less', above=0, below=1
    )
    plateau_reduce_patience: int = option(
        10, 'checks without a new best before a reduction; more wait longer', at_least=1
    )
    early_stop_patience: int = option(3, 'reductions before the run stops early; more go on longer', at_least=1)
    divergence_monitoring_steps: int | None = option(
        None,
        'steps before plateaus are looked for, off when not given; more wait longer',
        at_least=0,
        metavar='STEPS',
    )
    log_frequency: int | None = option(
        None,
        'episodes between two checks of the mean, the number of environments when not given; more check less often',
        at_least=1,
    )
    display_precision: int = option(2, 'decimals in the console; more show smaller changes', at_least=0, at_most=12)
    quiet: bool = option(False, 'only the closing line')


@dataclasses.dataclass
class RunOptions(RecordOptions, EndOptions):
    """The process around an agent: what `fit`, `train_iter` and `make` take, and 1.0's constructor took.

    A run folder has a place for everything; an own path that is given wins.
    """

    stages: list[str] | None = option(
        None, 'registered stages of your own, see docs/extending.md; they stand where they say', metavar='NAME'
    )

    def check(self) -> None:
        """Check the options against each other."""
        for name in ('checkpoint_frequency', 'keep'):
            if getattr(self, name) is not None and self.run_dir is None:
                raise OptionError(name, f'got {getattr(self, name)} without --run-dir, whose checkpoints it is about')
        if self.keep is not None and self.checkpoint_frequency is None:
            raise OptionError('keep', f'got {self.keep} without --checkpoint-frequency, whose checkpoints it counts')

    def place(self, name: str) -> str | None:
        """Return where something of the run is kept, a file or folder of the run folder; None without one."""
        return None if self.run_dir is None else os.path.join(self.run_dir, name)

    @property
    def history_path(self) -> str | None:
        """The history's file."""
        return self.history_checkpoint or self.place('history.parquet')

    @property
    def metrics_path(self) -> str | None:
        """The file of the metrics."""
        return self.place('metrics.parquet')

    @property
    def events_folder(self) -> str | None:
        """The folder of TensorBoard's events."""
        return self.tensorboard or self.place('tensorboard')

    @property
    def video_folder(self) -> str:
        """The folder of the videos of `video_frequency`."""
        return self.place('videos') or 'videos'


@dataclasses.dataclass
class SessionOptions(Options):
    """The machine and the console."""

    threads: int | None = option(
        None, "TensorFlow's threads, chosen by the network when not given; more help large networks", at_least=1
    )
    debug: bool = option(False, 'show the traceback of an error')


@dataclasses.dataclass
class TrainOptions(Options):
    """What only `xagents train` takes, besides the run's own options."""

    weights: list[str] | None = option(None, 'checkpoints to start from, one path a model', metavar='PATH')
    from_study: str | None = option(
        None, 'take the settings of the best trial of a study that xagents tune made', metavar='NAME'
    )
    storage: str | None = option(None, 'where the study of --from-study is kept', metavar='URL')
    tuned: bool = option(
        False, 'settings that ship for the agent and the environment, see xagents presets; flags on the line win'
    )
    resume: str | None = option(
        None,
        'run folder (or group of them) to go on with, as if it had never stopped; flags on the line win',
        metavar='DIR',
    )
    config: str | None = option(
        None,
        'YAML file whose keys are flags; a list of values makes a grid of runs; flags on the line win',
        metavar='FILE',
    )
    print_config: bool = option(False, 'print the file for --config that this command stands for, and stop')
    seeds: list[int] | None = option(
        None,
        'one run for each seed, in folders of their own under --run-dir; more judge settings more surely',
        at_least=0,
        at_most=2**32 - 1,
    )
    grid_jobs: int = option(1, 'runs of a grid at the same time; more need more cores', at_least=1)


@dataclasses.dataclass
class TuneOptions(Options):
    """`xagents tune`."""

    search: bool = option(False, "search the agent's ready ranges, too")
    print_search: bool = option(False, 'print what would be searched, and stop')
    n_trials: int = option(
        1,
        'trials that this call finishes, as many as --timeout allows where only that is given; more search longer',
        at_least=1,
    )
    trial_steps: int = option(
        500_000, 'environment steps of a trial; more tell good settings from bad ones more surely', at_least=1
    )
    timeout: float | None = option(
        None, 'end the call after that many seconds; more search longer', above=0, metavar='SECONDS'
    )
    n_jobs: int = option(1, 'worker processes, each with a trial at a time; more need more cores', at_least=1)
    study: str | None = option(
        None, 'name of the study, continued if it exists; AGENT-ENV when not given', metavar='NAME'
    )
    storage: str | None = option(
        None,
        'where the study is kept, in memory when not given: sqlite:///FILE, postgresql://…, mysql://…, journal:FILE',
        metavar='URL',
    )
    objective: str = option(
        'reward',
        'what a trial is worth: the mean of its last episodes, or of greedy ones on separate environments',
        choices=('reward', 'evaluation'),
    )
    eval_episodes: int = option(
        10, 'greedy episodes of an evaluation, for --objective evaluation; more give a surer mean', at_least=1
    )
    trial_seeds: int = option(
        1, 'runs of a trial with seeds of their own, whose mean is its value; more judge more surely', at_least=1
    )
    sampler: str = option('tpe', 'how settings are chosen', choices=('tpe', 'random', 'cmaes', 'gp'))
    pruner: str = option('median', 'how bad trials are stopped early', choices=('median', 'hyperband', 'none'))
    warmup_trials: int = option(
        5, 'trials that end before --pruner median stops any; more stop fewer good ones by mistake', at_least=0
    )
    out: str | None = option(None, 'folder for best.yaml, trials.parquet and pictures', metavar='DIR')
    non_silent: bool = option(False, 'show what the trials say')
    tuned: bool = option(False, "begin with the environment's tuned settings: xagents presets lists them")
    weights: list[str] | None = option(None, 'checkpoints that trials start from, one path a model', metavar='PATH')


@dataclasses.dataclass
class ActOptions(Options):
    """What `play` and `evaluate` share."""

    weights: list[str] | None = option(None, 'checkpoints of the trained agent, one path a model', metavar='PATH')
    run_dir: str | None = option(None, 'run folder of the trained agent, instead of --weights', metavar='DIR')
    checkpoint: str = option(
        'best', 'which checkpoint of the run folder: best, last, or the name of one', metavar='NAME'
    )
    stochastic: bool = option(False, 'sample actions instead of taking the best')


@dataclasses.dataclass
class PlayOptions(ActOptions):
    """`xagents play`."""

    video_dir: str | None = option(None, 'folder for an .mp4 of the episode', metavar='DIR')
    render: bool = option(False, 'show the episode in a window')
    frame_dir: str | None = option(None, 'folder for the frames as .jpg', metavar='DIR')
    frame_delay: float = option(0.0, 'seconds between frames; more play more slowly', at_least=0)
    frame_frequency: int = option(1, 'save every so many frames; more save fewer', at_least=1)
    action_idx: int = option(0, "index of the policy among the model's outputs", at_least=0)
    max_steps: int | None = option(None, 'end the episode after that many steps; more let it last longer', at_least=1)


@dataclasses.dataclass
class EvaluateOptions(ActOptions):
    """`xagents evaluate`."""

    episodes: int = option(20, 'episodes to play; more give a surer mean', at_least=1)
    json: bool = option(False, 'print one JSON object')


@dataclasses.dataclass
class ExportOptions(Options):
    """`xagents export`."""

    weights: list[str] | None = option(None, 'checkpoints of the trained agent, one path a model', metavar='PATH')
    run_dir: str | None = option(None, 'run folder of the trained agent, instead of --weights', metavar='DIR')
    checkpoint: str = option(
        'best', 'which checkpoint of the run folder: best, last, or the name of one', metavar='NAME'
    )
    format: str = option('savedmodel', 'what is written', choices=('savedmodel', 'litert', 'onnx'))
    out: str | None = option(None, 'folder for the policy', metavar='DIR')


@dataclasses.dataclass
class RunsOptions(Options):
    """`xagents runs`."""

    json: bool = option(False, 'print one JSON object a run, a line each')
    debug: bool = option(False, 'show the traceback of an error')


@dataclasses.dataclass
class PlotOptions(Options):
    """`xagents plot`."""

    run_dir: list[str] | None = option(None, 'run folders, or groups of them, to draw', metavar='DIR')
    labels: list[str] | None = option(None, 'a label for each history; histories under one label are averaged')
    by: str = option('step', 'the horizontal axis', choices=('step', 'time'))
    column: str = option(
        'mean_reward',
        'what is drawn: mean_reward, best_reward, episode_reward, and of --run-dir any metric, such as loss/policy',
    )
    time_unit: str = option(
        'auto', 'unit of --by time; auto suits the longest', choices=('auto', 'second', 'minute', 'hour', 'day')
    )
    average: str | None = option(
        None,
        'average of several: mean, interquartile mean or both; when not given, both of a group of --run-dir, else mean',
        choices=('mean', 'iqm', 'both'),
    )
    shade: str | None = option(
        None,
        'interval around it: standard error or deviation, 95 % confidence interval, range; when not given, se around '
        'a mean, else ci',
        choices=('se', 'std', 'ci', 'range', 'none'),
    )
    title: str | None = option(None, 'title of the picture; usually the environment')
    smooth: int = option(1, 'episodes that are averaged; larger draws a smoother curve', at_least=1)
    out: str = option('plot.png', 'the picture: .png, .svg or .pdf', metavar='PATH')
    debug: bool = option(False, 'show the traceback of an error')


@dataclasses.dataclass
class PresetsOptions(Options):
    """`xagents presets`."""

    debug: bool = option(False, 'show the traceback of an error')
