"""The factory of environments: the arguments of `create_envs` as data, which other processes can receive as JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector.utils import CloudpickleWrapper

from xagents.envs.interface import RECREATE_HINT, Envs
from xagents.envs.maker import NOT_ATARI, EnvMaker, find_maker, is_atari, load_wrappers
from xagents.envs.observations.action_masks import MASK_KEY, NO_MASK
from xagents.envs.observations.images import ImageOptions
from xagents.envs.spaces import Encoding
from xagents.envs.vectors import NO_NEEDS, EnvNeeds, make_vector
from xagents.envs.wrappers import AtariConfig
from xagents.options.environment import EnvironmentOptions
from xagents.options.errors import OptionError, did_you_mean, one_line
from xagents.system.modules import import_modules
from xagents.system.values import survives_json

VECTORS = ('auto', 'sync', 'async', 'compiled', 'native', 'envpool')


@dataclasses.dataclass(frozen=True)
class EnvFactory:
    """The arguments of `create_envs`. A call makes the environments; equal factories make equal environments.

    Args:
        env: a Gymnasium id; 'module:Id', which imports the module first; 'gym:Id' for an environment of the old gym;
            'pettingzoo:NAME' for several agents, such as pettingzoo:mpe2.simple_spread_v3; a Gymnasium spec; or a
            function that makes one environment (and accepts `render_mode` if the environment can be rendered).
        n_envs: the number of environments; with several agents in each, every agent is a row of `Envs`.
        preprocess: whether to use the Atari preprocessing; None detects games of the ALE.
        max_frame: accepted for compatibility with 1.0, without effect: the maximum of two frames is always taken when
            frames are skipped.
        max_episode_steps: a time limit, instead of the environment's own.
        env_kwargs: arguments of the environment.
        vector: 'auto' (functions of TensorFlow, Gymnasium's native vectors, else a loop; independent of installed
            extras), 'sync' (a loop in this process), 'async' (worker processes), 'compiled' (functions, see
            `xagents.envs.FunctionalEnv`), 'native' (Gymnasium's own vector of the environment) or 'envpool'.
        frame_stack: the number of frames in an image; None for 4 with the Atari preprocessing, otherwise 1.
        frame_skip: the number of steps for which each action is repeated; None for 4 with the Atari preprocessing,
            otherwise 1.
        grey: whether coloured images become grey; the Atari preprocessing always does this.
        resize: height and width of images, or one number for both; None for 84 with the Atari preprocessing, otherwise
            for the size of the environment.
        clip_rewards: Atari: whether rewards are clipped to their sign; statistics stay raw.
        episodic_life: Atari: whether a lost life counts as `terminated`.
        fire_reset: Atari: whether FIRE is pressed at the start of a life.
        sticky_actions: Atari: whether the last action is repeated with probability 0.25.
        wrapper: Gymnasium or PettingZoo wrappers, applied in order outside all others: 'module:Class', each followed by
            its arguments as 'key=value'; or functions.
        imports: modules to import first, which register environments.
        agent_index: whether the agent's one-hot index is appended to each observation of several agents.
        flatten: whether image observations become vectors.
        mask_key: the key of action masks in observations or infos; None or 'none' if there are no masks.
        critic_only: the keys of parts of observations that only critics receive.
        render_mode: Gymnasium's render mode.

    Raises:
        OptionError: for a wrong value; one line with the option, the value and the expected values.
    """

    env: str | EnvSpec | Callable[..., Any]
    n_envs: int = 1
    preprocess: bool | None = None
    max_frame: bool = True
    _: dataclasses.KW_ONLY
    max_episode_steps: int | None = None
    env_kwargs: Mapping[str, Any] | None = None
    vector: str = 'auto'
    frame_stack: int | None = None
    clip_rewards: bool = True
    episodic_life: bool = True
    fire_reset: bool = True
    sticky_actions: bool = False
    wrapper: Sequence[str | Callable[..., Any]] = ()
    imports: Sequence[str] = ()
    agent_index: bool = False
    flatten: bool = False
    mask_key: str | None = MASK_KEY
    frame_skip: int | None = None
    grey: bool = False
    resize: Sequence[int] | int | None = None
    critic_only: Sequence[str] = ()
    render_mode: str | None = None

    def __post_init__(self) -> None:
        """Check numbers and choices, and convert lists to tuples."""
        for name in ('n_envs', 'frame_stack', 'frame_skip', 'max_episode_steps'):
            number = getattr(self, name)
            if name != 'n_envs' and number is None:
                continue
            if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
                raise OptionError(name, f'got {number!r}, expected a whole number of at least 1')
            object.__setattr__(self, name, int(number))
        if self.resize is not None:
            given: Any = self.resize if isinstance(self.resize, Sequence | np.ndarray) else (self.resize,)
            sizes = (*given, *given) if len(given) == 1 else tuple(given)
            if len(sizes) != 2 or not all(isinstance(size, int | np.integer) and size > 0 for size in sizes):
                expected = 'expected height and width, or one number for both'
                raise OptionError('resize', f'got {self.resize!r}, {expected}')
            object.__setattr__(self, 'resize', sizes)
        if self.vector not in VECTORS:
            hint = did_you_mean(str(self.vector), VECTORS)
            raise OptionError('vector', f'got {self.vector!r}, expected {", ".join(VECTORS)}{hint}')
        for name in ('wrapper', 'imports', 'critic_only'):
            value = getattr(self, name)
            single = isinstance(value, str) or callable(value)
            object.__setattr__(self, name, (value,) if single else tuple(value or ()))

    def __call__(
        self,
        *,
        training: bool = True,
        in_process: bool = False,
        compiled: bool | None = None,
        needs: EnvNeeds = NO_NEEDS,
        **fields: Any,
    ) -> Envs:
        """Make the environments.

        Args:
            training: whether Atari games keep their training settings; otherwise rewards stay raw and only the end of
                a game ends an episode.
            in_process: whether the environments run in this process instead of worker processes.
            compiled: whether functions may replace the steps of the environments; by default only for training, so
                that a score is never of a copy of the environment.
            needs: what the run needs; 'auto' then uses only functions that have it.
            fields: values that replace those of the factory, such as `n_envs` and `render_mode`.

        Raises:
            OptionError: if the environments cannot be made; one line with the option and the reason.
        """
        fields |= {} if training else {'clip_rewards': False, 'episodic_life': False}
        compiled = (training and not in_process) if compiled is None else compiled
        if in_process and self.vector != 'envpool':
            fields['vector'] = 'sync'
        elif self.vector in ('compiled', 'native') and not compiled:  # there may be none with frames, for example
            fields['vector'] = 'auto'
        factory = dataclasses.replace(self, **fields)
        import_modules(factory.imports)
        envs = factory._make_pool() if factory.vector == 'envpool' else factory._make_vector(compiled, needs)
        if self.vector in ('compiled', 'native'):
            envs.factory = dataclasses.replace(factory, vector=self.vector)
        return envs

    def _make_vector(self, compiled: bool, needs: EnvNeeds) -> Envs:
        maker = self.maker()
        made, has_reports = make_vector(maker, self.n_envs, self.vector, compiled, needs)
        stack = maker.atari.frame_stack if maker.atari else maker.images.frame_stack
        stack = 1 if maker.atari and maker.wrappers else stack  # a user's wrapper may change the stack
        about: dict[str, Any] = {'spec': maker.spec, 'frame_stack': stack, 'atari': maker.atari is not None}
        envs = Envs(made, id=maker.name, has_reports=has_reports, factory=self, encoding=maker.encoding, **about)
        if envs.n_mask and maker.frame_skip > 1:
            with envs:
                got = f'got {maker.frame_skip}, but {envs.id} has action masks'
                raise OptionError('frame_skip', f'{got}, which a repeated action may break; expected 1')
        self._check_mask_key(envs)
        return envs

    def _check_mask_key(self, envs: Envs) -> None:
        """Check that observations or infos have a mask with a key that the user set."""
        if envs.n_mask or self.encoding.mask_key in (None, MASK_KEY):
            return
        with envs:
            space = envs.encoder.raw_space
            keys = list(space.spaces) if isinstance(space, spaces.Dict) else []
            known = f', expected one of {", ".join(keys)}{did_you_mean(str(self.mask_key), keys)}' if keys else ''
            key = self.mask_key or 'nothing'
            problem = f'got {key}, but {envs.id} has no such action mask in observations or infos'
            raise OptionError('mask_key', problem + known)

    def maker(self) -> EnvMaker:
        """Return the maker of one environment.

        Raises:
            OptionError: for an unknown name, or an option that does not fit the environment.
        """
        maker = find_maker(
            self.env,
            kwargs=dict(self.env_kwargs or {}),
            max_episode_steps=self.max_episode_steps,
            wrappers=load_wrappers(self.wrapper),
            render_mode=self.render_mode,
            agent_index=bool(self.agent_index),
            encoding=self.encoding,
        )
        recognised = is_atari(maker.spec, maker.kwargs)
        if self.preprocess and maker.spec is not None and not recognised:
            raise OptionError('preprocess', maker.name + NOT_ATARI)
        preprocess = recognised if self.preprocess is None else self.preprocess
        if preprocess:
            skip = maker.kwargs.get('frameskip', 4) if self.frame_skip is None else self.frame_skip
            return dataclasses.replace(maker, atari=dataclasses.replace(self._atari, frame_skip=skip))
        resize: Any = self.resize
        images = ImageOptions(self.frame_stack or 1, self.grey, resize)
        return dataclasses.replace(maker, images=images, frame_skip=self.frame_skip or 1)

    def _make_pool(self) -> Envs:
        from xagents.envs.envpool import EnvPoolVectorEnv

        name = self.env if isinstance(self.env, str) else None
        if name is None or ':' in name or self.wrapper or self.agent_index:
            odd = {'wrappers': self.wrapper, 'agent_index': self.agent_index, 'a function': name is None}
            got = next((what for what, is_so in odd.items() if is_so), name)
            expected = "one of EnvPool's own environments without wrappers"
            raise OptionError('vector', f'got envpool with {got}, expected {expected}')
        for option in ('frame_skip', 'grey', 'resize'):
            if (value := getattr(self, option)) not in (None, False):
                raise OptionError(option, f'got {value} with --vector envpool, expected another vector')
        own: dict[str, Any] = {'preprocess': self.preprocess, 'max_episode_steps': self.max_episode_steps}
        own |= {'kwargs': self.env_kwargs, 'render_mode': self.render_mode}
        made = EnvPoolVectorEnv(name, self.n_envs, self._atari, **own)
        stack = self._atari.frame_stack if made.atari else 1
        about: dict[str, Any] = {'frame_stack': stack, 'atari': made.atari, 'encoding': self.encoding}
        return Envs(made, id=name, has_reports=True, factory=self, **about)

    @property
    def encoding(self) -> Encoding:
        """The options of the encoder of observations."""
        mask_key = None if self.mask_key == NO_MASK else self.mask_key
        return Encoding(bool(self.flatten), mask_key, tuple(self.critic_only))

    @property
    def _atari(self) -> AtariConfig:
        size: Any = (84, 84) if self.resize is None else self.resize
        frames = 4 if self.frame_stack is None else self.frame_stack, 4 if self.frame_skip is None else self.frame_skip
        return AtariConfig(*frames, size, self.clip_rewards, self.episodic_life, self.fire_reset, self.sticky_actions)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values.

        Raises:
            ValueError: if JSON cannot represent a value, such as a function.
        """
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields = {name: list(value) if type(value) is tuple else value for name, value in values.items()}
        if isinstance(self.env, EnvSpec):
            with contextlib.suppress(Exception):  # arguments of an environment may be any objects
                text = self.env.to_json()
                fields['env'] = json.loads(text) if EnvSpec.from_json(text) == self.env else self.env
        if unsendable := ', '.join(name for name, value in fields.items() if not survives_json(value)):
            raise ValueError(f'{unsendable} cannot be sent to other processes, expected numbers and texts')
        return fields

    @staticmethod
    def from_dict(fields: Any) -> EnvFactory:
        """Return the factory of which `to_dict` returned these fields. Nothing is imported or executed.

        Raises:
            ValueError: in one line, for an unknown field or a value that is not valid.
        """
        if not (isinstance(fields, dict) and survives_json(fields)):
            raise ValueError(f'environment: got {one_line(repr(fields))[:80]}, expected a dict of JSON values')
        others = {'env': None, 'render_mode': None, **fields}
        env, render_mode = others.pop('env'), others.pop('render_mode')
        if not (isinstance(env, str | dict) and isinstance(render_mode, str | None)):
            raise OptionError('env', f'got {env!r} with render_mode {render_mode!r}, expected names')
        options = EnvironmentOptions.resolve(others).asdict()
        try:
            source = EnvSpec.from_json(json.dumps(env)) if isinstance(env, dict) else env
        except Exception as error:
            raise OptionError('env', f'got {one_line(repr(env))[:80]}, expected the fields of a spec') from error
        return EnvFactory(**{**options, 'env': source, 'render_mode': render_mode})

    def for_child_process(self) -> EnvFactory:
        """Return a factory that makes the same environments in a process in which no script has registered any."""
        is_qualified = isinstance(self.env, str) and ':' in self.env and not self.env.startswith('__main__:')
        if not isinstance(self.env, str) or self.vector == 'envpool' or is_qualified:
            return self
        source = self.maker().source
        if isinstance(source, EnvSpec):
            return dataclasses.replace(self, env=source, imports=())  # only names need imports
        # other processes find registered functions by name, except those of the main script
        is_local = getattr(source, '__module__', '__main__') == '__main__'
        return dataclasses.replace(self, env=source) if is_local else self


def factory_to_bytes(envs: Envs) -> bytes:
    """Return what makes environments like these in a child process of this one; see `envs_from_bytes`.

    The bytes are JSON, except for functions and other objects of a script. They exist only as code, and are the only
    pickle of xagents. The bytes are only for a child process that this process starts itself.

    Raises:
        ValueError: if it is unknown how to make the environments, or a function cannot be pickled; in one line.
    """
    if not isinstance(envs.factory, EnvFactory):
        raise ValueError(envs.not_recreated_because)
    factory: Any = dataclasses.replace(envs.factory.for_child_process(), n_envs=1)  # `envs_from_bytes` sets it
    with contextlib.suppress(ValueError):
        return json.dumps(factory.to_dict()).encode()
    try:
        return pickle.dumps(CloudpickleWrapper(factory))
    except Exception as error:  # a user's function may reference any object
        problem = f'{envs.id} cannot be sent to another process ({one_line(error)})'
        raise ValueError(f'{problem}; {RECREATE_HINT}') from error


def envs_from_bytes(sent: bytes, n_envs: int) -> Envs:
    """Create `n_envs` environments from the bytes of `factory_to_bytes`, as `Envs.recreate` does.

    The bytes can execute any code: only those of the parent process may be used.
    """
    factory = EnvFactory.from_dict(json.loads(sent)) if sent.startswith(b'{') else pickle.loads(sent).fn
    return factory(n_envs=n_envs, render_mode=None, training=False)
