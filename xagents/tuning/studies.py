"""A study of trials: opened or continued, checked against what is asked, and kept free of trials that nobody runs.

A trial carries who runs it (`host`, `pid`, `process_started`) and when that one was last seen (`beat`), so that any
later call can tell a trial that goes on from one whose process is dead. Loads Optuna.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import numpy as np
import optuna
import psutil
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from xagents.options.errors import OptionError, nearest, shown
from xagents.tuning.search import Range

BEAT_SECONDS = 10.0
DEAD_SECONDS = 60.0
# a trial is signed at once
UNSIGNED_SECONDS = 5.0
# so often a trial is begun whose process dies under it
ATTEMPTS = 10
STARTUP_TRIALS = 10
# how long a study that exists may say nothing about itself
MAKING_SECONDS = 5.0
# reports of a trial before it may be stopped: a fifth of its first run
REPORTS_FIRST = 4


def hush_optuna() -> None:
    """Let Optuna keep its log lines and its warnings about experimental features to itself."""
    optuna.logging.set_verbosity(logging.ERROR)
    warnings.filterwarnings('ignore', module=r'optuna\..*')
    warnings.filterwarnings('ignore', category=optuna.exceptions.ExperimentalWarning)


class RepeatableSampler(optuna.samplers.BaseSampler):
    """A sampler that is made anew for each trial, with a seed of the trial's number.

    So a study that was stopped and continued chooses as one that was not, and two calls never draw the same twice.
    Choosing may take long: it begins by writing on the trial who does it.

    Args:
        make: makes a sampler of a seed.
        seed: of the study.
    """

    def __init__(self, make: Callable[[int], optuna.samplers.BaseSampler], seed: int):
        self._make = make
        self._seed = seed
        self._sampler = make(seed)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Sign the trial and make its sampler."""
        for name, value in {**_this_process(), 'beat': time.time()}.items():
            # a trial that is not sampled yet has no public face
            study._storage.set_trial_user_attr(trial._trial_id, name, value)
        self._sampler = self._make(int(np.random.SeedSequence([self._seed, trial.number]).generate_state(1)[0]))
        self._sampler.before_trial(study, trial)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """See Optuna."""
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """See Optuna."""
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """See Optuna."""
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Any) -> None:
        """See Optuna."""
        self._sampler.after_trial(study, trial, state, values)


def make_sampler(name: str, seed: int) -> RepeatableSampler:
    """Return a sampler: tpe, random, cmaes or gp.

    Raises:
        OptionError: where a package that it needs is missing.
    """
    samplers: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
        'tpe': lambda seed: optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS),
        'random': lambda seed: optuna.samplers.RandomSampler(seed=seed),
        'cmaes': lambda seed: optuna.samplers.CmaEsSampler(
            seed=seed, n_startup_trials=STARTUP_TRIALS, warn_independent_sampling=False
        ),
        'gp': lambda seed: optuna.samplers.GPSampler(
            seed=seed, n_startup_trials=STARTUP_TRIALS, warn_independent_sampling=False
        ),
    }
    try:
        for module in {'cmaes': ('cmaes',), 'gp': ('scipy', 'torch')}.get(name, ()):
            __import__(module)
        return RepeatableSampler(samplers[name], seed)
    except ImportError as error:
        raise OptionError('sampler', f"got {name}, which needs {error.name}: pip install 'xagents[{name}]'") from None


def make_pruner(name: str, warmup_trials: int, reports: int) -> optuna.pruners.BasePruner:
    """Return what stops bad trials early: median, hyperband or none; `reports` is how often a trial reports."""
    if name == 'median':
        return optuna.pruners.MedianPruner(n_startup_trials=warmup_trials, n_warmup_steps=REPORTS_FIRST)
    if name == 'hyperband':
        return optuna.pruners.HyperbandPruner(min_resource=REPORTS_FIRST, max_resource=reports)
    return optuna.pruners.NopPruner()


def open_study(
    name: str,
    storage: optuna.storages.BaseStorage,
    facts: Mapping[str, Any],
    ranges: Mapping[str, Range],
    first: Mapping[str, Any],
    sampler: optuna.samplers.BaseSampler,
    pruner: optuna.pruners.BasePruner,
) -> optuna.Study:
    """Make a study, or continue the one of this name.

    Args:
        name: of the study.
        storage: where it is kept.
        facts: what its trials share, kept as its attributes: agent, env, fixed, trial_steps, objective, trial_seeds.
        ranges: what is searched.
        first: the parameters of a new study's first trial.
        sampler: how parameters are chosen.
        pruner: how trials are stopped.

    Raises:
        OptionError: where a study of this name does not fit what is asked.
    """
    try:
        study = optuna.create_study(
            study_name=name, storage=storage, sampler=sampler, pruner=pruner, direction='maximize'
        )
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(study_name=name, storage=storage, sampler=sampler, pruner=pruner)
        _wait_for_maker(study, facts)
        _check(study, facts, ranges)
        if study.user_attrs.keys() >= facts.keys():
            return study
    # whoever made it says what it is about last, so that one begun by two calls has one first trial
    if not study.trials:
        study.enqueue_trial(dict(first))
    for key, value in facts.items():
        study.set_user_attr(key, value)
    return study


def _wait_for_maker(study: optuna.Study, facts: Mapping[str, Any]) -> None:
    """Wait until the call that makes a study at this moment has said what it is about; it may have died over it."""
    end = time.monotonic() + MAKING_SECONDS
    while not study.user_attrs.keys() >= facts.keys() and time.monotonic() < end:
        time.sleep(0.1)


def _check(study: optuna.Study, facts: Mapping[str, Any], ranges: Mapping[str, Range]) -> None:
    """Check that another call's study is about the same."""
    other = 'admits the same as before, or another --study'
    if study.directions != [StudyDirection.MAXIMIZE]:
        directions = ', '.join(direction.name.lower() for direction in study.directions)
        raise OptionError('study', f'got {study.study_name}, which was made to {directions}, admits one to maximize')
    known = study.user_attrs
    for key, value in facts.items():
        if key in known and key != 'fixed' and known[key] != value:
            raise OptionError(key, f'got {value}, but the study {study.study_name} has {shown(known[key])}, {other}')
    trials = study.trials
    if any(trial.state != TrialState.WAITING for trial in trials) and not known.keys() >= facts.keys():
        raise OptionError('study', f'got {study.study_name}, whose trials are none of xagents tune, admits another one')
    # the parameters of others may be incomplete
    done = [trial for trial in trials if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    searched = {name: d for trial in done for name, d in trial.distributions.items()}
    fixed, was_fixed = facts['fixed'], known.get('fixed', {})
    for name in searched.keys() - ranges.keys():
        raise OptionError(name, f'is not searched here, but in the study {study.study_name}, {other}')
    for name, r in ranges.items():
        if done and name not in searched:
            raise OptionError(name, f'is searched here, but not in the study {study.study_name}, {other}')
        try:
            optuna.distributions.check_distribution_compatibility(
                searched.get(name, r.distribution()), r.distribution()
            )
        except ValueError:
            had = _as_typed(searched[name])
            raise OptionError(name, f'got {r}, but the study {study.study_name} has {had}, {other}') from None
    for name in sorted(fixed.keys() | was_fixed.keys()):
        if 'fixed' in known and fixed.get(name) != was_fixed.get(name):
            got, had = (shown(x.get(name, 'the default')) for x in (fixed, was_fixed))
            raise OptionError(name, f'got {got}, but the study {study.study_name} has {had}, {other}')


def _as_typed(distribution: Any) -> str:
    if isinstance(distribution, optuna.distributions.CategoricalDistribution):
        return 'one of ' + ', '.join(map(str, distribution.choices))
    kind = 'whole numbers' if isinstance(distribution, optuna.distributions.IntDistribution) else 'numbers'
    return f'{kind} from {distribution.low:.12g} to {distribution.high:.12g}'


def options_of(study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
    """Return every option of a trial by name: those fixed, those searched, env, max_steps and seed."""
    facts = study.user_attrs
    options = {'env': facts['env'], **facts['fixed'], **trial.params, 'max_steps': facts['trial_steps']}
    if 'seed' in trial.user_attrs:
        options['seed'] = trial.user_attrs['seed']
    return options


def best_trial(study: optuna.Study) -> FrozenTrial | None:
    """Return the best of the completed trials; None where there is none."""
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return max(completed, key=lambda trial: trial.value or 0.0) if completed else None


def load_best(name: str, storage: optuna.storages.BaseStorage, agent_id: str) -> tuple[FrozenTrial, dict[str, Any]]:
    """Return the best trial of a study and its options, without the seed that it was lucky with.

    Raises:
        OptionError: where there is no such study, or none of this agent, or no trial of it was completed.
    """
    names = optuna.get_all_study_names(storage)
    if name not in names:
        admitted = ', '.join(names) or 'none: it has no study'
        raise OptionError('from_study', f'got {shown(name)}, the storage has {admitted}{nearest(name, names)}')
    study = optuna.load_study(study_name=name, storage=storage)
    owner = study.user_attrs.get('agent')
    if owner != agent_id:
        whose = f'is one of {owner}' if owner else 'was not made by xagents tune'
        raise OptionError('from_study', f'got {name}, which {whose}, admits one of {agent_id}')
    trial = best_trial(study)
    if trial is None:
        raise OptionError('from_study', f'got {name}, of which no trial has been completed')
    return trial, {option: value for option, value in options_of(study, trial).items() if option != 'seed'}


# who runs a trial


@functools.cache
def _this_process() -> dict[str, Any]:
    pid = os.getpid()
    return {'host': socket.gethostname(), 'pid': pid, 'process_started': psutil.Process(pid).create_time()}


def claim(trial: Trial, seed: int | None) -> int:
    """Write on a trial when its runs began, and with which seed; returns that seed."""
    trial.set_user_attr('started', datetime.now().astimezone().isoformat(timespec='seconds'))
    if seed is None:
        # one that is tried again has the seed that it had
        seed = trial.user_attrs.get('seed', new_seed())
    trial.set_user_attr('seed', seed)
    return int(seed)


def beat(trial: Trial) -> None:
    """Write on a trial that it goes on."""
    trial.set_user_attr('beat', time.time())


def is_abandoned(trial: FrozenTrial) -> bool:
    """Return whether nobody runs a RUNNING trial any more.

    On this host its process can be asked for; of another host's one beat in `DEAD_SECONDS` is expected.
    """
    attributes = trial.user_attrs
    if attributes.get('host') == socket.gethostname() and 'process_started' in attributes:
        return not _is_alive(attributes['pid'], attributes['process_started'])
    begun = trial.datetime_start.timestamp() if trial.datetime_start else 0.0
    patience = DEAD_SECONDS if 'beat' in attributes else UNSIGNED_SECONDS
    return time.time() - attributes.get('beat', begun) > patience


def _is_alive(pid: int, started: float) -> bool:
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        # a number is given again to another process, which began at another time
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - started) < 1.0
    return False


def break_off(study: optuna.Study, number: int) -> bool:
    """Fail a trial that nobody runs any more, and put another one of the same settings before the next ones.

    Returns:
        Whether this call did so; another one may have come first, and exactly one of them does.
    """
    try:
        study.tell(number, state=TrialState.FAIL)
    except (optuna.exceptions.UpdateFinishedTrialError, ValueError):
        return False
    _try_again(study, study.trials[number])
    return True


def reap(study: optuna.Study, mine: Iterable[int]) -> list[int]:
    """Break off the trials that a dead process left RUNNING; returns their numbers. `mine` are run by this one."""
    trials = study.get_trials(deepcopy=False)
    followed = {trial.user_attrs.get('retry_of') for trial in trials}
    for trial in trials:
        # whoever failed it died before it could be tried again; one that failed by itself says its reason
        broken_off = trial.state == TrialState.FAIL and 'host' in trial.user_attrs and 'reason' not in trial.user_attrs
        if broken_off and trial.number not in followed and _ended_long_ago(trial):
            _try_again(study, trial)
    running = [trial for trial in trials if trial.state == TrialState.RUNNING and trial.number not in mine]
    return [trial.number for trial in running if is_abandoned(trial) and break_off(study, trial.number)]


def _ended_long_ago(trial: FrozenTrial) -> bool:
    ended = trial.datetime_complete
    return ended is not None and time.time() - ended.timestamp() > DEAD_SECONDS


def _try_again(study: optuna.Study, trial: FrozenTrial) -> None:
    attributes = trial.user_attrs
    attempt = attributes.get('attempt', 1)
    if attempt < ATTEMPTS:
        kept = {name: attributes[name] for name in ('seed',) if name in attributes}
        # of one that was broken off while it was being chosen, what was chosen beforehand
        parameters = {**trial.system_attrs.get('fixed_params', {}), **trial.params}
        study.enqueue_trial(parameters, {**kept, 'retry_of': trial.number, 'attempt': attempt + 1})


def new_seed() -> int:
    """Return a seed that nobody has given."""
    return int(np.random.SeedSequence().generate_state(1)[0])
