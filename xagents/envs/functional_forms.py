"""The functional form of an environment that a name or a function stands for. Loads TensorFlow only for such a form."""

from __future__ import annotations

import functools
import types
from typing import Any, NamedTuple, cast

from xagents.envs.functional.adapter import FunctionalMaker
from xagents.envs.functional.interface import FunctionalEnv, is_functional_class
from xagents.envs.maker import EnvMaker
from xagents.envs.observations.images import ImageOptions
from xagents.options.errors import OptionError, one_line

# classes of Gymnasium, and those of `classic_control` with equal dynamics
GYMNASIUM_FORMS = {
    'gymnasium.envs.classic_control.cartpole:CartPoleEnv': 'CartPole',
    'gymnasium.envs.classic_control.pendulum:PendulumEnv': 'Pendulum',
    'gymnasium.envs.classic_control.acrobot:AcrobotEnv': 'Acrobot',
    'gymnasium.envs.classic_control.mountain_car:MountainCarEnv': 'MountainCar',
    'gymnasium.envs.classic_control.continuous_mountain_car:Continuous_MountainCarEnv': 'MountainCarContinuous',
}


class FunctionalForm(NamedTuple):
    """An environment as functions.

    Attributes:
        functional: the functions.
        limit: steps after which an episode is truncated; None for no limit.
        replaces: whether they replace an environment of Python steps, which may have more parameters and infos.
    """

    functional: FunctionalEnv
    limit: int | None
    replaces: bool


def functional_form(maker: EnvMaker) -> FunctionalForm | str:
    """Return the functional form of an environment, or the reason why there is none.

    Raises:
        OptionError: if the functions refuse their parameters.
    """
    spec, source = maker.spec, cast(Any, maker.source)
    kwargs, limit = dict(maker.kwargs), maker.max_episode_steps
    if spec is not None:
        kwargs, source = {**spec.kwargs, **kwargs}, spec.entry_point
        limit = limit or spec.max_episode_steps
        if spec.additional_wrappers:
            return 'has wrappers'
    replaces = isinstance(source, str) and source in GYMNASIUM_FORMS
    if not isinstance(source, FunctionalMaker) and not is_functional_class(source) and not replaces:
        if isinstance(source, types.FunctionType | functools.partial):
            return 'is a function, expected a class of xagents.envs.FunctionalEnv, with its arguments in env_kwargs'
        return 'consists of Python steps, not of functions (see xagents.envs.FunctionalEnv)'
    changed = {
        'with wrappers': bool(maker.wrappers),
        'with --agent-index': maker.agent_index,
        'with the Atari preprocessing': maker.atari is not None,
        'with --frame-skip': maker.frame_skip > 1,
        'with changed images': maker.images != ImageOptions(),
        'with frames': maker.render_mode is not None,
    }
    if found := next((what for what, is_so in changed.items() if is_so), ''):
        return f'cannot be compiled {found}'
    form: Any = source.functional if isinstance(source, FunctionalMaker) else source
    if replaces:
        from xagents.envs.functional import classic_control  # loads TensorFlow

        form = getattr(classic_control, GYMNASIUM_FORMS[source])
        if unknown := [name for name in kwargs if name not in form.default_params]:
            return f'has no functions for the argument {unknown[0]}'
    try:
        functional = form(**kwargs)
    except OptionError:
        raise
    except ValueError as error:
        raise OptionError('env_kwargs', one_line(error)) from error
    except TypeError as error:
        maker.refuse(error)
    functional.check_declarations()
    # an id of the registry has the limit of its registration only
    return FunctionalForm(functional, limit if spec is not None else limit or functional.max_episode_steps, replaces)


def no_form(name: str, reason: str) -> str:
    """Return the message for a compiled vector that is not possible."""
    return f'got compiled, but {name} {one_line(reason)}; expected auto, sync or async'
