"""Studies: samplers and pruners, opening or continuing a study, and its best trial."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from xagents.options.errors import OptionError, did_you_mean, format_value
from xagents.tuning.ownership import process_identity
from xagents.tuning.plan import TuningPlan
from xagents.tuning.search import SearchRange

# how long to wait for another call that is creating the study
CREATION_SECONDS = 5.0
# number of reports before a trial may be pruned: a fifth of its first run
MIN_REPORTS = 4
STARTUP_OPTIONS: dict[str, Any] = {'n_startup_trials': 10}
SAMPLERS: dict[str, tuple[Callable[..., BaseSampler], dict[str, Any]]] = {
    'tpe': (TPESampler, STARTUP_OPTIONS),
    'random': (RandomSampler, {}),
    'cmaes': (CmaEsSampler, {**STARTUP_OPTIONS, 'warn_independent_sampling': False}),
    'gp': (GPSampler, {**STARTUP_OPTIONS, 'warn_independent_sampling': False}),
}
PACKAGES = {'cmaes': ('cmaes',), 'gp': ('scipy', 'torch')}


def make_sampler(name: str, seed: int) -> BaseSampler:
    """Return a sampler.

    Before each trial the sampler is created with a seed from the number of the trial. So a continued study samples
    the same settings as an uninterrupted one, and two parallel calls sample different settings.

    Args:
        name: tpe, random, cmaes or gp.
        seed: seed of the study.

    Raises:
        OptionError: if a required package is missing.
    """
    parent, options = SAMPLERS[name]

    class SeededSampler(parent):  # type: ignore[valid-type, misc]
        def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
            # sampling may take long, so set the owner of the trial first; Optuna has no public method for it here
            for key, value in {**process_identity(), 'beat': time.time()}.items():
                study._storage.set_trial_user_attr(trial._trial_id, key, value)
            state = np.random.SeedSequence([seed, trial.number]).generate_state(1)
            self.__init__(seed=int(state[0]), **options)  # type: ignore[misc]
            super().before_trial(study, trial)

    try:
        for package in PACKAGES.get(name, ()):
            __import__(package)
    except ImportError as error:
        raise OptionError('sampler', f"got {name}, which needs {error.name}: pip install '.[{name}]'") from None
    return SeededSampler(seed=seed, **options)


def make_pruner(name: str, warmup_trials: int, reports: int) -> BasePruner:
    """Return a pruner, which stops bad trials early.

    Args:
        name: median, hyperband or none.
        warmup_trials: number of trials that are never pruned (median).
        reports: number of reports of a trial (hyperband).
    """
    if name == 'median':
        return MedianPruner(n_startup_trials=warmup_trials, n_warmup_steps=MIN_REPORTS)
    return HyperbandPruner(MIN_REPORTS, reports) if name == 'hyperband' else NopPruner()


def open_study(planned: TuningPlan, storage: BaseStorage, sampler: BaseSampler, pruner: BasePruner) -> optuna.Study:
    """Create the planned study or continue an existing one; raise OptionError if the existing one differs."""
    study_attributes = planned.study_attributes
    how: dict[str, Any] = {'study_name': planned.study_name, 'storage': storage, 'sampler': sampler, 'pruner': pruner}
    try:
        study = optuna.create_study(direction='maximize', **how)
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(**how)
        # the call that is creating the study may not have set its attributes yet, or may have died before
        end = time.monotonic() + CREATION_SECONDS
        while not study.user_attrs.keys() >= study_attributes.keys() and time.monotonic() < end:
            time.sleep(0.1)
        _check(study, study_attributes, planned.ranges)
        if study.user_attrs.keys() >= study_attributes.keys():
            return study
    # set the attributes last, so that two calls that create a study enqueue one first trial
    if not study.trials:
        study.enqueue_trial(dict(planned.first))
    for key, value in study_attributes.items():
        study.set_user_attr(key, value)
    return study


def _check(study: optuna.Study, study_attributes: Mapping[str, Any], ranges: Mapping[str, SearchRange]) -> None:
    """Raise OptionError if an existing study has other attributes or ranges."""

    def differs(name: str, got: Any, had: Any) -> OptionError:
        return OptionError(name, f'got {got}, but the study {study.study_name} has {had}, {other}')

    other = 'expected the same value, or another --study'
    directions = ', '.join(direction.name.lower() for direction in study.directions)
    if directions != 'maximize':
        problem = f'with the directions {directions}, expected one objective, to maximize'
        raise OptionError('study', f'got {study.study_name} {problem}')
    known = study.user_attrs
    for key, value in study_attributes.items():
        if key in known and key != 'fixed' and known[key] != value:
            raise differs(key, value, format_value(known[key]))
    trials = study.trials
    if any(trial.state != TrialState.WAITING for trial in trials) and not known.keys() >= study_attributes.keys():
        problem = 'whose trials are not from xagents tune, expected another study'
        raise OptionError('study', f'got {study.study_name}, {problem}')
    # trials of other states may lack some parameters
    done = [trial for trial in trials if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    searched = {name: d for trial in done for name, d in trial.distributions.items()}
    fixed, was_fixed = study_attributes['fixed'], known.get('fixed', {})
    for name in searched.keys() - ranges.keys():
        raise OptionError(name, f'is not searched here, but in the study {study.study_name}, {other}')
    for name, r in ranges.items():
        if done and name not in searched:
            raise OptionError(name, f'is searched here, but not in the study {study.study_name}, {other}')
        now = r.distribution()
        try:
            optuna.distributions.check_distribution_compatibility(searched.get(name, now), now)
        except ValueError:
            raise differs(name, r, _as_typed(searched[name])) from None
    for name in sorted(fixed.keys() | was_fixed.keys()):
        if 'fixed' in known and fixed.get(name) != was_fixed.get(name):
            raise differs(name, *(format_value(options.get(name, 'the default')) for options in (fixed, was_fixed)))


def _as_typed(distribution: Any) -> str:
    if isinstance(distribution, CategoricalDistribution):
        return 'one of ' + ', '.join(map(str, distribution.choices))
    kind = 'whole numbers' if isinstance(distribution, IntDistribution) else 'numbers'
    return f'{kind} from {distribution.low:.12g} to {distribution.high:.12g}'


def trial_options(study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
    """Return all options of a trial by name: fixed and searched options, env, max_steps and seed."""
    shared, own = study.user_attrs, trial.user_attrs
    options = {'env': shared['env'], **shared['fixed'], **trial.params, 'max_steps': shared['trial_steps']}
    return {**options, 'seed': own['seed']} if 'seed' in own else options


def best_trial(study: optuna.Study) -> FrozenTrial | None:
    """Return the best complete trial, or None if there is none."""
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return max(completed, key=lambda trial: trial.value or 0.0) if completed else None


def load_best(name: str, storage: BaseStorage, agent_id: str) -> tuple[FrozenTrial, dict[str, Any]]:
    """Return the best trial of a study and its options without the seed.

    Args:
        name: name of the study.
        storage: the storage of the study.
        agent_id: id of the agent.

    Raises:
        OptionError: if the study does not exist, is for another agent, or has no complete trial.
    """
    names = optuna.get_all_study_names(storage)
    if name not in names:
        admitted = ', '.join(names) or 'a study, but the storage has none'
        raise OptionError('from_study', f'got {format_value(name)}, expected {admitted}{did_you_mean(name, names)}')
    study = optuna.load_study(study_name=name, storage=storage)
    owner = study.user_attrs.get('agent')
    if owner != agent_id:
        whose = f'is a study of {owner}' if owner else 'was not created by xagents tune'
        raise OptionError('from_study', f'got {name}, which {whose}, expected a study of {agent_id}')
    trial = best_trial(study)
    if trial is None:
        raise OptionError('from_study', f'got {name}, which has no complete trial')
    return trial, {option: value for option, value in trial_options(study, trial).items() if option != 'seed'}
