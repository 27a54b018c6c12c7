"""Packages that register environments in Gymnasium: the module that registers an id, and how to install it."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import re
import shlex
import sys

from xagents.options.errors import OptionError


@dataclasses.dataclass(frozen=True)
class EnvPackage:
    """A package of environments.

    Attributes:
        module: the module that registers the environments when it is imported. Their entry points begin with its name.
        install: the argument of `pip install`.
        ids: a pattern of the ids that this package registers; '' if Gymnasium itself registers them.
        wrapper: wrappers that convert an unsupported part of its observations, for messages.
        requires: another module that the environments need, if the package can be installed without it.
    """

    module: str
    install: str
    ids: str = ''
    requires: str = ''
    wrapper: str = ''

    @property
    def is_installed(self) -> bool:
        """Whether the package is installed. Nothing is imported."""
        return all(map(is_importable, filter(None, (self.module, self.requires))))

    def missing_error(self, env: str) -> OptionError:
        """Return the error for an environment whose package is not installed."""
        what = 'an extra' if self.install.startswith('.[') else 'a package'
        return OptionError('env', f'{env} needs {what}: pip install {shlex.quote(self.install)}')


_VERSION = r'(-v\d+)?'
_ROBOTICS = '(Fetch(Reach|Push|Slide|PickAndPlace)|HandReach|HandManipulate|AdroitHand|FrankaKitchen|(Point|Ant)Maze).*'
_HIGHWAY = '(highway|exit|intersection|lane-keeping|merge|parking|racetrack|roundabout|two-way|u-turn)'
_HIGHWAY += f'(-(fast|multi-agent|generic|ActionRepeat|parked|large|oval))?{_VERSION}'
_MISSION = 'minigrid.wrappers:ImgObsWrapper (only the image) or minigrid.wrappers:FlatObsWrapper (a vector of all)'
PACKAGES = (
    EnvPackage('gymnasium.envs.box2d', '.[box2d]'),
    EnvPackage('gymnasium.envs.mujoco', '.[mujoco]'),
    EnvPackage('shimmy', '.[gym]'),
    # ids that only the Arcade Learning Environment registers
    EnvPackage('ale_py', '.[atari]', r'ALE/.+|.+(NoFrameskip|Deterministic)-v\d+'),
    EnvPackage('gymnasium_robotics', '.[robotics]', _ROBOTICS),
    EnvPackage('minigrid', 'minigrid', '(MiniGrid|BabyAI)-.+', wrapper=_MISSION),
    EnvPackage('minatar', 'minatar', 'MinAtar/.+'),
    EnvPackage('highway_env', 'highway-env', _HIGHWAY),
    EnvPackage('panda_gym', 'panda-gym', 'Panda(Reach|Push|Slide|PickAndPlace|Stack|Flip).*'),
    EnvPackage('metaworld', 'metaworld', 'Meta-World/.+'),
    EnvPackage('shimmy', 'shimmy[dm-control]', 'dm_control/.+', requires='dm_control'),
    EnvPackage('shimmy', 'shimmy[bsuite]', 'bsuite/.+', requires='bsuite'),
    EnvPackage('miniworld', 'miniworld', 'MiniWorld-.+'),
    EnvPackage('pybullet_envs_gymnasium', 'pybullet-envs-gymnasium', '.+BulletEnv.*'),
    EnvPackage('flappy_bird_gymnasium', 'flappy-bird-gymnasium', f'FlappyBird{_VERSION}'),
    EnvPackage('nle', 'nle', 'NetHack.*'),
)
# A data set may name the environments of these modules. It must not choose other code to import.
KNOWN_MODULES = frozenset(package.module for package in PACKAGES if package.ids)
# the modules whose ids need no module:Id
AUTOMATIC_MODULES = ('gymnasium', 'ale_py')


def package_of_id(name: str) -> EnvPackage | None:
    """Return the package that registers an id, given without its module, or None."""
    return next((one for one in PACKAGES if one.ids and re.fullmatch(one.ids, name, re.IGNORECASE)), None)


def package_of_module(module: str) -> EnvPackage | None:
    """Return the package of a module, or of an entry point in one of its modules; None if it is unknown."""
    return next((one for one in PACKAGES if re.match(rf'{re.escape(one.module)}(\W|$)', module)), None)


def is_importable(module: str) -> bool:
    """Return whether a module's top-level package is installed, without importing it."""
    return importlib.util.find_spec(module.partition('.')[0]) is not None


def qualified_id(name: str) -> str | None:
    """Return 'module:Id' for the id of an installed package that is not imported yet, otherwise None.

    Raises:
        OptionError: if the id belongs to a known package that is not installed.
    """
    package, space = package_of_id(name), name.partition('/')[0]
    if package is not None:
        qualified = name if package.module in AUTOMATIC_MODULES else f'{package.module}:{name}'
        if not package.is_installed:
            raise package.missing_error(qualified)
        return None if package.module in sys.modules else qualified
    is_module = space != name and space.isidentifier() and space not in sys.modules and is_importable(space)
    return f'{space}:{name}' if is_module else None


def is_envpool_id(name: str) -> bool:
    """Return whether EnvPool is installed and has an environment of this name."""
    if not is_importable('envpool'):
        return False
    import envpool

    return name in envpool.list_all_envs()


def run_entry_points(module: str) -> None:
    """Call the functions that a package lists as `gymnasium.envs`; Gymnasium 1.0 and newer does not call them."""
    for point in importlib.metadata.entry_points(group='gymnasium.envs'):
        if point.module.partition('.')[0] == module.partition('.')[0]:
            point.load()()
