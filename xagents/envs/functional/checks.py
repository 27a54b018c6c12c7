"""Checks of what the functions of an environment return, before they are compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array

from xagents.envs.functional.interface import FunctionalEnv, Params
from xagents.options.errors import OptionError
from xagents.system.trees import leaf_at, leaf_spaces
from xagents.system.values import describe

# operations of tf.py_function and tf.numpy_function
PYTHON_CALLS = ('PyFunc', 'PyFuncStateless', 'EagerPyFunc')


def check_functions(env: FunctionalEnv, n: int, params: Params) -> list[str]:
    """Check shapes and types of the results of all functions for n states; called while TensorFlow traces.

    Returns:
        the names of the numbers of infos.

    Raises:
        OptionError: for a result of another shape or type, in one line that names the function.
    """
    name, rng = type(env).__name__, tf.zeros(2, tf.int32)
    state = _traced(env.initial, rng, n, params)
    for x in tf.nest.flatten(state):
        _check(f'{name}.initial', x, [n, *np.shape(x)[1:]] if np.ndim(x) else [n])
    _check_observation(env, name, _traced(env.observation, state, params), n)
    action = tf.nest.map_structure(tf.convert_to_tensor, create_empty_array(env.action_space, n=n))
    after = _traced(env.transition, state, action, rng, params)
    try:
        tf.nest.assert_same_structure(state, after)
    except (TypeError, ValueError):
        raise OptionError('env', f'{name}.transition returned another structure than {name}.initial') from None
    for old, new in zip(tf.nest.flatten(state), tf.nest.flatten(after), strict=True):
        _check(f'{name}.transition', new, old.shape, [old.dtype])
    floats = [tf.float32, tf.float64, tf.int32, tf.int64]
    _check(f'{name}.reward', _traced(env.reward, state, action, after, params), [n], floats)
    _check(f'{name}.terminal', _traced(env.terminal, after, params), [n], [tf.bool])
    info = _traced(env.info, state, action, after, params)
    if not isinstance(info, Mapping):
        raise OptionError('env', f'{name}.info returned {describe(info)}, expected a dict of tensors of shape [{n}]')
    for key, x in info.items():
        _check(f'{name}.info[{key!r}]', x, [n], [*floats, tf.bool])
    return sorted(info)


def _traced(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function; raise OptionError if it calls Python, which XLA cannot compile."""
    graph = tf.zeros(()).graph
    n_known = len(graph.get_operations())
    result = function(*arguments)
    if any(op.type in PYTHON_CALLS for op in graph.get_operations()[n_known:]):
        what = function.__qualname__
        raise OptionError('env', f'{what} calls Python functions, expected operations of TensorFlow that XLA compiles')
    return result


def _check_observation(env: FunctionalEnv, name: str, observation: Any, n: int) -> None:
    space = env.observation_space
    leaves = leaf_spaces(space) if isinstance(space, spaces.Dict | spaces.Tuple) else [((), space)]
    for path, leaf in leaves:
        where = ''.join(f'[{key!r}]' for key in path)
        try:
            part = leaf_at(observation, path) if path else observation
        except (KeyError, IndexError, TypeError):
            raise OptionError('env', f'{name}.observation lacks the part {where} of its space') from None
        _check(f'{name}.observation{where}', part, [n, *(leaf.shape or ())])


def _check(what: str, x: Any, shape: Sequence[int], dtypes: Sequence[tf.DType] = ()) -> None:
    """Raise OptionError if a result is no tensor of a shape and of one of some types."""
    if not tf.is_tensor(x):
        raise OptionError('env', f'{what} returned a {type(x).__name__}, expected a tensor of shape {list(shape)}')
    if list(x.shape) != list(shape) or (dtypes and x.dtype not in dtypes):
        expected = f'{" or ".join(d.name for d in dtypes[:2])} ' if dtypes else ''
        raise OptionError('env', f'{what} returned {x.dtype.name} {list(x.shape)}, expected {expected}{list(shape)}')
