"""Environments for learning from a data set: its spaces, and the environments of evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from xagents.datasets.reading import Dataset
from xagents.envs.interface import Envs
from xagents.envs.packages import KNOWN_MODULES
from xagents.envs.spaces import DEFAULT_ENCODING, Encoding, ObservationEncoder
from xagents.options.declaration import declared_options
from xagents.options.environment import EnvironmentOptions
from xagents.options.errors import OptionError, one_line

NOT_STEPPED = 'the agent was made for a data set and has no environment to step: make another one without dataset='


class OfflineVectorEnv(VectorEnv):
    """A vector environment with the spaces of one environment, which cannot be reset or stepped."""

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space):
        self.num_envs, self.render_mode = 1, None
        self.metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP}
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space, self.action_space = batch_space(observation_space, 1), batch_space(action_space, 1)

    def reset(self, *, seed: Any = None, options: Any = None) -> NoReturn:
        """Raise a TypeError."""
        raise TypeError(NOT_STEPPED)

    def step(self, actions: Any) -> NoReturn:
        """Raise a TypeError."""
        raise TypeError(NOT_STEPPED)


def offline_envs(dataset: Dataset, real: Envs | None = None, encoding: Encoding = DEFAULT_ENCODING) -> Envs:
    """Return environments that cannot be stepped, with the spaces of a data set.

    Args:
        dataset: the data set.
        real: environments that evaluations recreate, if there are any.
        encoding: options of the encoder of observations, if there are no such environments.
    """
    if real is None:
        vector = OfflineVectorEnv(dataset.observation_space, dataset.action_space)
        return Envs(vector, id=dataset.name, encoding=encoding)
    vector = OfflineVectorEnv(real.encoder.raw_space, real.action_space)
    about: dict[str, Any] = {'spec': real.spec, 'frame_stack': real.frame_stack, 'atari': real.atari}
    return Envs(vector, id=real.id, factory=real.factory, encoding=real.encoder.encoding, **about)


def dataset_environment_options(dataset: Dataset) -> tuple[dict[str, Any], str]:
    """Return the environment options that a data set names.

    A data set may come from somebody else and must not choose which code is imported. Its environment is therefore
    used only if it is registered in Gymnasium, or in a package that is known to register environments.

    Returns:
        The options, and an empty text; or no options, and the reason.
    """
    named = dataset.environment_options
    env, kwargs = named.get('env'), named.pop('env_kwargs', None)
    if not isinstance(env, str):
        return {}, f'{dataset.name} names no environment: give one by --env'
    module = env.rpartition(':')[0]
    if named.get('wrapper') or named.get('imports') or (module and module not in KNOWN_MODULES):
        what = f'{env} with its wrappers' if named.get('wrapper') else env
        return {}, f'{dataset.name} was recorded in {what}, which needs custom code: give it by --env and --wrapper'
    if isinstance(kwargs, dict):
        kwargs = {key: value for key, value in kwargs.items() if key != 'render_mode'}
    try:
        known = {name: value for name, value in named.items() if name in declared_options(EnvironmentOptions)}
        options = {**known, **({'env_kwargs': kwargs} if kwargs else {})}
        EnvironmentOptions.resolve(options)
    except (OptionError, ValueError, TypeError) as error:
        return {}, f'{dataset.name} names an environment that cannot be made ({one_line(error)}): give one by --env'
    return options, ''


def check_fits(dataset: Dataset, envs: Envs, option: str) -> None:
    """Check that a data set has the observation and action spaces of environments.

    The bounds of Box observations may differ.

    Args:
        dataset: the data set.
        envs: the environments.
        option: the option that was given the name of the data set, for messages.

    Raises:
        OptionError: in one line, if the spaces differ.
    """
    shown, raw = dataset.observation_space, envs.encoder.raw_space
    try:
        encoder = ObservationEncoder(shown, envs.encoder.encoding)
    except ValueError as error:
        raise OptionError(option, f'got {dataset.name}: {one_line(error)}') from error
    if encoder.space.shape != envs.encoder.space.shape or not _equal_but_for_bounds(shown, raw):
        problem = f'with observations in {one_line(shown)}, expected {one_line(raw)} as in {envs.id}'
        raise OptionError(option, f'got {dataset.name} {problem}')
    if dataset.action_space != envs.action_space:
        got, expected = one_line(dataset.action_space), one_line(envs.action_space)
        raise OptionError(option, f'got {dataset.name} with actions in {got}, expected {expected} as in {envs.id}')


def _equal_but_for_bounds(one: spaces.Space, other: spaces.Space) -> bool:
    """Return whether two spaces are equal apart from the bounds of Box spaces."""
    if isinstance(one, spaces.Box) and isinstance(other, spaces.Box):
        return one.shape == other.shape and one.dtype == other.dtype
    if isinstance(one, spaces.Dict) and isinstance(other, spaces.Dict):
        keys = one.spaces.keys()
        return keys == other.spaces.keys() and all(_equal_but_for_bounds(one[key], other[key]) for key in keys)
    if isinstance(one, spaces.Tuple) and isinstance(other, spaces.Tuple):
        return len(one) == len(other) and all(map(_equal_but_for_bounds, one.spaces, other.spaces))
    return one == other


def environment_to_dict(environment_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that make one such environment, for JSON: all except `n_envs` and `vector`."""
    return {name: value for name, value in environment_options.items() if name not in ('n_envs', 'vector')}
