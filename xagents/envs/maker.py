"""Construction of one environment from its name and options, with one-line errors and ordered wrappers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn, TypeGuard

import gymnasium
from gymnasium.envs.registration import EnvSpec, parse_env_id, registry

from xagents.envs.functional.adapter import FunctionalAdapter
from xagents.envs.functional.interface import FunctionalEnv, is_functional_class
from xagents.envs.games import SeatEnv
from xagents.envs.multi_agent import ParallelEnvAdapter
from xagents.envs.observations.action_masks import with_info_mask, with_parallel_info_masks
from xagents.envs.observations.images import FrameSkip, ImageOptions, ProcessImages
from xagents.envs.packages import is_envpool_id, package_of_id, package_of_module, qualified_id, run_entry_points
from xagents.envs.pettingzoo_envs import PREFIX, PettingZooMaker, is_pettingzoo_env, takes_turns, to_parallel_env
from xagents.envs.registry import env_registry
from xagents.envs.spaces import DEFAULT_ENCODING, Encoding
from xagents.envs.wrappers import AtariConfig, EpisodeReport, RawReward, preprocess_atari
from xagents.options.declaration import value_of_text
from xagents.options.errors import OptionError, did_you_mean, nearest, one_line
from xagents.registry.parts import NAME_PATTERN
from xagents.system.modules import import_module

NOT_ATARI = ' is not an Atari game with screen observations, expected an Atari game'


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvMaker:
    """A picklable function that makes one environment from these settings.

    Args:
        name: the name that the user typed, for messages and files.
        source: Gymnasium's spec, or a function that makes an environment, also a functional one.
        kwargs: arguments of the environment.
        atari: the settings of the Atari preprocessing; None for any other environment.
        max_episode_steps: a time limit in steps of the agent, instead of the environment's own.
        wrappers: the user's wrappers, applied in order outside all others; for PettingZoo, directly around the
            environment.
        render_mode: Gymnasium's render mode.
        agent_index: whether the agent's one-hot index is appended to each observation of several agents.
        equal_spaces: whether several agents must have equal spaces, as a single policy requires.
        encoding: options of the encoder of observations, in `Envs` or in the adapter of several agents.
        frame_skip: number of steps for which each action is repeated, if the Atari preprocessing does not do so.
        images: what happens to images that have no Atari preprocessing.
    """

    name: str
    source: EnvSpec | Callable[..., gymnasium.Env | FunctionalEnv]
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    atari: AtariConfig | None = None
    max_episode_steps: int | None = None
    wrappers: tuple[Callable[[gymnasium.Env], gymnasium.Env], ...] = ()
    render_mode: str | None = None
    agent_index: bool = False
    equal_spaces: bool = True
    encoding: Encoding = DEFAULT_ENCODING
    frame_skip: int = 1
    images: ImageOptions = ImageOptions()  # noqa: RUF009 -- a tuple

    @property
    def spec(self) -> EnvSpec | None:
        """Gymnasium's spec, or None if a function makes the environment."""
        return self.source if isinstance(self.source, EnvSpec) else None

    def __call__(self) -> gymnasium.Env:
        """Make the environment.

        Returns:
            the environment with `EpisodeReport` as its outermost wrapper, or a `ParallelEnvAdapter` of several agents.

        Raises:
            OptionError: if the environment cannot be made; the message names the missing or wrong part.
        """
        kwargs = dict(self.kwargs)
        if self.atari:
            load_ale_quietly()  # also in a worker process
        if self.atari and self.spec is not None:
            kwargs.pop('frameskip', None)
            kwargs = {'repeat_action_probability': 0.25 if self.atari.sticky_actions else 0.0, **kwargs, 'frameskip': 1}
        env = self._make_env(kwargs)
        if isinstance(env, ParallelEnvAdapter):
            if self.atari:
                raise OptionError('preprocess', f'{self.name} is not an Atari game, expected an Atari game')
            if option := self._image_option:
                expected = 'expected a wrapper of PettingZoo or SuperSuit, as --wrapper module:function'
                raise OptionError(option, f'{self.name} has several agents, {expected}')
            return env
        if isinstance(env.unwrapped, FunctionalAdapter):
            env.unwrapped.check()
        if isinstance(env, SeatEnv):
            self._check_game()
        if self.agent_index or not self.equal_spaces:
            if isinstance(env, SeatEnv):
                option, expected = (
                    'agent_index' if self.agent_index else 'policies',
                    'expected none: one policy learns all',
                )
                raise OptionError(option, f'{self.name} is a game, whose agents take turns, {expected} seats')
            option = 'agent_index' if self.equal_spaces else 'policies'
            raise OptionError(option, f'{self.name} has one agent, expected an environment with several')
        if self.atari:
            _check_atari(env, self.name)
            env = preprocess_atari(env, self.atari, self.max_episode_steps)
        else:
            env = RawReward(env)
            env = FrameSkip(env, self.frame_skip) if self.frame_skip > 1 else env
        for wrapper in self.wrappers:
            env = _wrap(env, wrapper)
        if self.atari:
            return EpisodeReport(env)
        env = ProcessImages(env, self.images, self.name) if self.images != ImageOptions() else env
        return EpisodeReport(with_info_mask(env, self.encoding.mask_key))

    @property
    def _image_option(self) -> str | None:
        """The first option that changes images or repeats actions; None without one."""
        changed = {'frame_skip': self.frame_skip > 1, **dict(zip(self.images._fields, self.images, strict=True))}
        defaults = {'frame_skip': False, **ImageOptions._field_defaults}
        return next((name for name, value in changed.items() if value != defaults[name]), None)

    def _check_game(self) -> None:
        """Check that no option changes what only one seat of a game sees or does."""
        unseen = 'which its opponents would not see'
        if option := self._image_option:
            raise OptionError(option, f'{self.name} is a game: it would change observations or moves, {unseen}')
        for wrapper in self.wrappers:
            function = _without_arguments(wrapper)
            if not (isinstance(function, type) and issubclass(function, gymnasium.RewardWrapper)):
                got = f'got {getattr(function, "__name__", function)}, but {self.name} is a game'
                expected = 'expected a gymnasium.RewardWrapper'
                raise OptionError('wrapper', f'{got}: it may change observations, {unseen}; {expected}')

    def _make_env(self, kwargs: dict[str, Any]) -> gymnasium.Env:
        """Make the environment without wrappers, but with its time limit unless the Atari preprocessing applies it."""
        limit = None if self.atari or self.max_episode_steps is None else self.max_episode_steps * self.frame_skip
        try:
            if self.spec is not None:
                if self.render_mode is not None:
                    kwargs['render_mode'] = self.render_mode
                return gymnasium.make(self.spec, max_episode_steps=limit, **kwargs)
            assert not isinstance(self.source, EnvSpec)
            draws = _accepts(self.source, 'render_mode') and not is_functional_class(self.source)
            if self.render_mode is not None and draws:
                kwargs['render_mode'] = self.render_mode
            env: Any = self.source(**kwargs)
        except Exception as error:
            self.refuse(error)
        if isinstance(env, FunctionalEnv):
            env.check_declarations()
            limit = limit or env.max_episode_steps
            if self.render_mode is not None and not env.can_render:
                raise OptionError('video_dir', f'{self.name} draws no pictures, expected a class with a method render')
            env = FunctionalAdapter(env, self.render_mode)
        if is_pettingzoo_env(env) and takes_turns(env):
            return SeatEnv(env, self.name, limit, self.encoding.mask_key)
        if is_pettingzoo_env(env):
            return self._make_adapter(env)
        if isinstance(env, gymnasium.Env):
            for name in ('observation_space', 'action_space'):
                if not isinstance(getattr(env, name, None), gymnasium.Space):
                    raise OptionError('env', f'{self.name} has no {name}, expected a space of gymnasium.spaces')
        else:
            what = 'a PettingZoo environment' if isinstance(self.source, PettingZooMaker) else 'a gymnasium.Env'
            raise OptionError('env', f'{self.name} made a {type(env).__name__}, expected {what}')
        return env if limit is None else gymnasium.wrappers.TimeLimit(env, limit)

    def _make_adapter(self, env: Any) -> ParallelEnvAdapter:
        """Return the adapter of a PettingZoo environment."""
        env = to_parallel_env(env)
        for wrapper in self.wrappers:
            env = _wrap(env, wrapper)
        env = with_parallel_info_masks(env, self.encoding.mask_key)
        settings = (self.max_episode_steps, self.agent_index, self.equal_spaces, self.encoding)
        team = ParallelEnvAdapter(env, self.name, *settings)
        team.reset(seed=0)  # raise errors of a reset before a run writes files
        return team

    def refuse(self, error: Exception) -> NoReturn:
        """Raise an error of making the environment as a one-line `OptionError`; programming errors stay unchanged."""
        entry = self.spec.entry_point if self.spec is not None else None
        if isinstance(error, OptionError):
            raise error
        if isinstance(error, ImportError | gymnasium.error.DependencyNotInstalled):
            package = package_of_module(entry) if isinstance(entry, str) else None
            if package is not None:
                raise package.missing_error(self.name) from error
        if isinstance(error, TypeError) and 'unexpected keyword argument' in str(error):
            wrong = str(error).split("'")[1] if "'" in str(error) else one_line(error)
            if wrong == 'render_mode':
                problem = f'{self.name} draws no pictures, expected an environment that takes render_mode'
                raise OptionError('video_dir', problem) from error
            functional = getattr(entry or self.source, 'functional', self.source)  # of a FunctionalMaker
            found = parameters_of(entry) or getattr(self.source, 'parameters', [])
            found = [*getattr(functional, 'default_params', ())] or found
            known = [name for name in found if name not in ('self', 'kwargs', 'render_mode')]
            hint = f', expected {", ".join(known)}{did_you_mean(wrong, known)}' if known else ''
            raise OptionError('env_kwargs', f'{self.name} takes no {wrong!r}{hint}') from error
        if isinstance(error, ValueError) and is_functional_class(self.source):
            raise OptionError('env_kwargs', one_line(error)) from error
        if isinstance(error, TypeError) and (
            needed := re.search(r'missing \d+ required .*?arguments?: (.*)', str(error))
        ):
            pairs = ' '.join(f'{name}=VALUE' for name in re.findall(r"'(\w+)'", needed[1]))
            raise OptionError('env_kwargs', f'{self.name} lacks arguments, expected {pairs}') from error
        expected = isinstance(error, ImportError | gymnasium.error.Error)
        if expected or isinstance(self.source, PettingZooMaker):
            raise OptionError('env', f'{self.name} cannot be made: {one_line(error)}') from error
        raise error


def find_maker(env: str | EnvSpec | Callable[..., gymnasium.Env], **settings: Any) -> EnvMaker:
    """Return the maker of an environment; the environment is not made yet.

    Args:
        env: an id of Gymnasium's registry, 'module:Id' (the module, which may be in the working directory, is imported
            first), 'gym:Id' for the old gym through shimmy, 'pettingzoo:NAME' (see `PettingZooMaker`), the name of a
            registered function (see `xagents.envs.registry`), a spec, or a function that makes one environment.
        **settings: further fields of `EnvMaker`.

    Raises:
        OptionError: for an unknown name, with the nearest known name, or for a missing extra.
    """
    if isinstance(env, EnvSpec):
        return EnvMaker(name=env.id, source=env, **settings)
    if not isinstance(env, str):
        if not callable(env):
            expected = 'a name or a function that makes a gymnasium.Env'
            raise OptionError('env', f'got a {type(env).__name__}, expected {expected}')
        return EnvMaker(name=getattr(env, '__name__', type(env).__name__), source=env, **settings)
    if env.startswith(PREFIX):
        return EnvMaker(name=env, source=PettingZooMaker(env.removeprefix(PREFIX)), **settings)
    module, _, name = env.rpartition(':')
    if module == 'gym':
        return EnvMaker(name=env, source=_old_gym(name, settings.pop('max_episode_steps', None)), **settings)
    if module:
        found = getattr(_import_package(module, name), name, None)
        if name not in registry and name in env_registry.registered:  # by the module
            return EnvMaker(name=env, source=env_registry.registered[name], **settings)
        if name not in registry and _is_env_class(found):
            return EnvMaker(name=env, source=found, **settings)
    elif NAME_PATTERN.fullmatch(name) and name not in registry and (function := env_registry.find(name)) is not None:
        return EnvMaker(name=env, source=function, **settings)
    return EnvMaker(name=env, source=_spec(name, f'{module}:' if module else ''), **settings)


def _import_package(module: str, name: str) -> ModuleType:
    """Import and return the module that defines or registers the environment `name`."""
    package = package_of_id(name)
    package = package if package is not None and package.module == module else package_of_module(module)
    if package is not None and not package.is_installed:
        raise package.missing_error(f'{module}:{name}')
    imported = import_module(module, 'env')
    if name not in registry:
        run_entry_points(module)
    return imported


def _is_env_class(found: Any) -> TypeGuard[type[gymnasium.Env | FunctionalEnv]]:
    return isinstance(found, type) and issubclass(found, gymnasium.Env | FunctionalEnv)


def _spec(name: str, prefix: str) -> EnvSpec:
    if name not in registry:
        with contextlib.suppress(ImportError):
            load_ale_quietly()  # registers the games
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error as error:
        nearest = _nearest_id(name, prefix)
        hint = f' (did you mean {nearest}?)' if nearest else ''
        if not prefix and is_envpool_id(name):
            hint = ' in Gymnasium, expected --vector envpool, because EnvPool has one'
        if prefix and not hint:
            known = 'gymnasium.Env or xagents.envs.FunctionalEnv'
            hint = f': {prefix[:-1]} neither registers an environment {name} nor has a class {name} of {known}'
        elif not hint:
            got = ', which is a function of a script' if name == '<lambda>' else ''
            hint = f'{got}, expected an id of Gymnasium, or module:Id or module:Class for an environment of a module'
            if not prefix and (
                name.isidentifier() or name == '<lambda>'
            ):  # a run records the name of a class or function
                hint += '; an environment of a script needs env=… in Python'
        raise OptionError('env', f'no environment {prefix + name!r}{hint}') from error


def load_ale_quietly() -> None:
    """Import the Arcade Learning Environment, which registers its games, and suppress its banner."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def _nearest_id(name: str, prefix: str) -> str:
    """Return the newest version of the same name, or the most similar id or class; '' if none is near.

    Args:
        name: the id that is not registered.
        prefix: the module that the user named, as 'module:'.

    Raises:
        OptionError: if the id belongs to a known package that is not installed.
    """
    with contextlib.suppress(gymnasium.error.Error):
        space, base, version = parse_env_id(name)
        same = [spec for spec in registry.values() if (spec.namespace, spec.name) == (space, base)]
        # a game without its namespace: Pong-v5 is ALE/Pong-v5, and not Pong-v4
        games = [spec for spec in registry.values() if spec.namespace == 'ALE']
        same = [spec for spec in games if (spec.name, spec.version) == (base, version)] or same
        if same:
            return prefix + max(same, key=lambda spec: spec.version or 0).id
    # Wrong case is the most frequent mistake, and difflib rates it as very dissimilar. Versions would make all similar.
    module = vars(sys.modules[prefix[:-1]]) if prefix else {}
    classes = [known for known, value in module.items() if _is_env_class(value)]
    by_base = {_base(known): known for known in (*classes, *registry, *env_registry.names())}
    if (known := by_base.get(_base(name))) is not None:
        return prefix + known
    if not prefix and (qualified := qualified_id(name)) is not None:
        return qualified
    found = nearest(_base(name), by_base, cutoff=0.75)
    return prefix + by_base[found] if found else ''


def _base(name: str) -> str:
    """Return an id in lower case without its version."""
    return re.sub(r'-v\d+$', '', name.lower())


def _old_gym(name: str, max_episode_steps: int | None) -> Callable[..., gymnasium.Env]:
    try:
        # The import of gym prints four lines about its age to stderr.
        with contextlib.redirect_stderr(io.StringIO()):
            gym = importlib.import_module('gym')
            importlib.import_module('shimmy')
    except ImportError:
        raise OptionError('env', f"gym:{name} needs an extra: pip install '.[gym]'") from None
    try:
        gym.spec(name)
    except gym.error.Error as error:
        known = list(gym.envs.registry)
        raise OptionError('env', f'no environment gym:{name}{did_you_mean(name, known)}') from error
    limit = {} if max_episode_steps is None else {'max_episode_steps': max_episode_steps}
    return functools.partial(make_old_gym, name, limit)


def make_old_gym(name: str, limit: Mapping[str, Any], render_mode: str | None = None, **kwargs: Any) -> gymnasium.Env:
    """Make an environment of the old gym as a Gymnasium one, without gym's checker, which fails with NumPy 2."""
    with contextlib.redirect_stderr(io.StringIO()):
        importlib.import_module('shimmy')
    arguments = {'disable_env_checker': True, 'render_mode': render_mode, **limit, **kwargs}
    return gymnasium.make('GymV26Environment-v0', env_id=name, make_kwargs=arguments)


def is_atari(spec: EnvSpec | None, kwargs: Mapping[str, Any]) -> bool:
    """Return whether a spec is a game of the Arcade Learning Environment with screen observations."""
    if spec is None or not (isinstance(spec.entry_point, str) and spec.entry_point.startswith('ale_py')):
        return False
    return {**spec.kwargs, **kwargs}.get('obs_type', 'rgb') != 'ram'


def _check_atari(env: gymnasium.Env, name: str) -> None:
    inner = env.unwrapped
    if not hasattr(inner, 'ale') or len(env.observation_space.shape or ()) < 2:
        raise OptionError('preprocess', name + NOT_ATARI)
    if getattr(inner, '_frameskip', 1) != 1:
        raise OptionError('preprocess', f'{name} skips frames itself; make it with frameskip=1')
    try:
        import cv2  # noqa: F401
    except ImportError:
        raise OptionError('preprocess', f"{name} needs an extra: pip install '.[atari]'") from None


def load_wrappers(wrappers: Sequence[str | Callable[..., Any]]) -> tuple[Callable[..., Any], ...]:
    """Return wrappers from names 'module:Class', each followed by its arguments as 'key=value', and from functions.

    Raises:
        OptionError: for an unknown name, or arguments without a wrapper.
    """
    groups: list[tuple[Any, dict[str, Any]]] = []
    for entry in wrappers:
        key, equals, value = entry.partition('=') if isinstance(entry, str) else ('', '', '')
        if not (equals and key.isidentifier()):
            groups.append((entry, {}))
            continue
        if not groups or not isinstance(groups[-1][0], str):
            raise OptionError('wrapper', f'got {entry}, expected module:Class before its arguments')
        if key in groups[-1][1]:
            raise OptionError('wrapper', f'got {key} twice for {groups[-1][0]}, expected each argument once')
        groups[-1][1][key] = value_of_text(value)
    loaded = [(load_wrapper(wrapper), arguments) for wrapper, arguments in groups]
    return tuple(functools.partial(wrapper, **arguments) if arguments else wrapper for wrapper, arguments in loaded)


def load_wrapper(wrapper: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return the wrapper named 'module:Class'; a function is returned unchanged."""
    if not isinstance(wrapper, str):
        if not callable(wrapper):
            raise OptionError('wrapper', f'got a {type(wrapper).__name__}, expected module:Class or a function')
        return wrapper
    module, _, name = wrapper.partition(':')
    if not module or not name:
        path, dot, last = wrapper.rpartition('.')
        example = f'{path}:{last}' if dot and not module.endswith(':') else 'gymnasium.wrappers:TimeAwareObservation'
        raise OptionError('wrapper', f'got {wrapper!r}, expected module:Class, such as {example}')
    loaded = import_module(module, 'wrapper')
    if not callable(getattr(loaded, name, None)):
        problem = f'{name} is no class' if hasattr(loaded, name) else f'{module} has no class {name}'
        hint = '' if hasattr(loaded, name) else did_you_mean(name, dir(loaded))
        raise OptionError('wrapper', f'got {wrapper!r}, but {problem}{hint}')
    return getattr(loaded, name)


def _without_arguments(wrapper: Callable[..., Any]) -> Callable[..., Any]:
    return wrapper.func if isinstance(wrapper, functools.partial) else wrapper


def _wrap(env: Any, wrapper: Callable[..., Any]) -> Any:
    function = _without_arguments(wrapper)
    name = getattr(function, '__name__', type(function).__name__)
    try:
        wrapped = wrapper(env)
    except Exception as error:
        raise OptionError('wrapper', f'{name} cannot wrap {type(env.unwrapped).__name__}: {one_line(error)}') from error
    pettingzoo = is_pettingzoo_env(env)
    if not (is_pettingzoo_env(wrapped) if pettingzoo else isinstance(wrapped, gymnasium.Env)):
        expected = 'a PettingZoo environment' if pettingzoo else 'a gymnasium.Env'
        raise OptionError('wrapper', f'{name} returned a {type(wrapped).__name__}, expected {expected}')
    return wrapped


def parameters_of(entry: Any) -> list[str]:
    """Return the parameter names of an entry point; empty if they are unknown."""
    try:
        if isinstance(entry, str):
            entry = gymnasium.envs.registration.load_env_creator(entry)
        return list(inspect.signature(entry).parameters)
    except (TypeError, ValueError, ImportError, AttributeError):
        return []


def _accepts(function: Callable[..., Any], name: str) -> bool:
    with contextlib.suppress(TypeError, ValueError):
        return any(p.name == name or p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())
    return False
