"""The interface of environments that are functions of tensors. Does not load TensorFlow."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium import spaces

from xagents.options.errors import OptionError, did_you_mean
from xagents.system.values import describe

if TYPE_CHECKING:
    import tensorflow as tf

Params = Mapping[str, Any]


class FunctionalEnv:
    """An environment as functions of a batch of n states, with the names of Gymnasium's `FuncEnv`.

    A state is a tensor [n, …], or a tuple, list or dict of such tensors. The functions use operations of TensorFlow
    that XLA compiles, and no Python state. They see neither the ends of episodes nor resets: xagents applies the time
    limit and starts new episodes.

    `rng` is a seed, int32 [2], for the functions of `xagents.envs.functional.random`. It is another one in each step;
    `split` makes several seeds of it.

    `params` contains the current values of the parameters by name, each a float32 scalar, or an array of the shape of
    its default value. Other values need no compilation, so a curriculum or domain randomisation can change them during
    a run (`Envs.set_params`).

    Attributes:
        observation_space: the space of one observation.
        action_space: the space of one action.
        max_episode_steps: steps after which an episode is truncated; None for no limit.
        default_params: the default values of the parameters by name.
        metadata: `render_fps`, frames per second of a video.

    Args:
        params: values of parameters that replace the defaults.

    Raises:
        OptionError: if `default_params` is no mapping.
        TypeError: for a parameter that does not exist.
        ValueError: for a parameter that is no finite number.
    """

    observation_space: spaces.Space
    action_space: spaces.Space
    max_episode_steps: int | None = None
    default_params: ClassVar[Params] = {}
    metadata: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, **params: Any) -> None:
        if not isinstance(self.default_params, Mapping):
            got = f'got {describe(self.default_params)}, expected a dict of values by name'
            raise OptionError('env', f'{type(self).__name__}.default_params: {got}')
        self.params = self.checked_params({**self.default_params, **params})

    def check_declarations(self) -> None:
        """Check the functions, the spaces and the time limit of the class.

        Raises:
            OptionError: for a function or space that is missing, or a limit that is no positive whole number.
        """
        name = type(self).__name__
        for function in ('initial', 'transition', 'observation', 'reward', 'terminal'):
            if getattr(type(self), function) is getattr(FunctionalEnv, function):
                raise OptionError('env', f'{name} has no method {function}, expected one')
        for space in ('observation_space', 'action_space'):
            if not isinstance(getattr(self, space, None), spaces.Space):
                raise OptionError('env', f'{name} has no {space}, expected a space of gymnasium.spaces')
        limit = self.max_episode_steps
        if limit is not None and (type(limit) is not int or limit < 1):
            expected = 'expected a whole number of at least 1, or None'
            raise OptionError('env', f'{name}.max_episode_steps: got {limit!r}, {expected}')

    def checked_params(self, params: Params) -> dict[str, np.ndarray]:
        """Return parameters as float32 arrays.

        Raises:
            TypeError: for a parameter that does not exist.
            ValueError: for a value that is no number, or has another shape than the default.
        """
        checked = {}
        for name, value in params.items():
            if name not in self.default_params:
                known = [*self.default_params]
                expected = (
                    f'expected one of {", ".join(known)}{did_you_mean(name, known)}' if known else 'expected none'
                )
                raise TypeError(f"{type(self).__name__} got an unexpected keyword argument '{name}', {expected}")
            default = self.default_params[name]
            shape = np.shape(default)
            expected = f'an array of shape {shape}, such as {_example(default)}' if shape else 'a number'
            try:
                with np.errstate(over='ignore'):  # an infinite number is refused below
                    checked[name] = np.asarray(value, np.float32)
            except (TypeError, ValueError):
                raise ValueError(f'{name}: got {value!r}, expected {expected}') from None
            if not np.isfinite(checked[name]).all():
                raise ValueError(f'{name}: got {value!r}, expected finite numbers')
            if checked[name].shape != shape:
                raise ValueError(f'{name}: got an array of shape {checked[name].shape}, expected {expected}')
        return checked

    def initial(self, rng: tf.Tensor, n: int, params: Params) -> Any:
        """Return n initial states."""
        raise NotImplementedError

    def transition(self, state: Any, action: tf.Tensor, rng: tf.Tensor, params: Params) -> Any:
        """Return the states after one step with the actions [n, …] of the action space."""
        raise NotImplementedError

    def observation(self, state: Any, params: Params) -> tf.Tensor:
        """Return the observations [n, *D] of states."""
        raise NotImplementedError

    def reward(self, state: Any, action: tf.Tensor, next_state: Any, params: Params) -> tf.Tensor:
        """Return the rewards [n] of steps from `state` to `next_state`."""
        raise NotImplementedError

    def terminal(self, state: Any, params: Params) -> tf.Tensor:
        """Return whether states are terminal, bool [n]."""
        raise NotImplementedError

    def info(self, state: Any, action: tf.Tensor, next_state: Any, params: Params) -> Mapping[str, tf.Tensor]:
        """Return numbers [n] of steps by name, which `--log-info` selects; the default is none."""
        return {}

    def render(self, state: Any, params: Params) -> np.ndarray:
        """Return a frame of one state, uint8 [H, W, 3]; the state and the parameters are NumPy arrays without n."""
        raise NotImplementedError

    @property
    def has_info(self) -> bool:
        """Whether the class has a method `info` of its own."""
        return type(self).info is not FunctionalEnv.info

    @property
    def can_render(self) -> bool:
        """Whether the class has a method `render` of its own."""
        return type(self).render is not FunctionalEnv.render


def _example(value: Any) -> str:
    """Return an array as it is typed on the command line, shortened."""
    text = str(np.asarray(value).tolist()).replace(' ', '')
    return text if len(text) < 40 else f'{text[:36]}…]'


def is_functional_class(source: Any) -> bool:
    """Return whether an object is a class of functional environments."""
    return inspect.isclass(source) and issubclass(source, FunctionalEnv)
