# ruff: noqa: RUF009 -- option() returns a dataclass field
"""Options of environments and of networks without a file."""

from __future__ import annotations

import dataclasses

from xagents.options.declaration import Options, choice, count, option
from xagents.options.errors import OptionError

# options that require --net
NET_ONLY_OPTIONS = ('activation', 'initializer', 'normalize_layers', 'block')


def no_environment(weights: str | list[str] | None = None) -> OptionError:
    """Return the error for a missing environment, which saved weights would name."""
    paths = [weights] if isinstance(weights, str) else weights
    why = f'got nothing, and {paths[0]} has no saved environment' if paths else 'got nothing'
    return OptionError('env', f'{why}, expected a Gymnasium id, such as CartPole-v1')


@dataclasses.dataclass
class EnvironmentOptions(Options):
    """Options of the environments and their wrappers."""

    env: str | None = option(
        None,
        'environment: an id of Gymnasium, module:Id, gym:Id of the old gym, or pettingzoo:NAME with several agents',
        metavar='ID',
    )
    n_envs: int = choice(
        1, 'number of parallel environments; larger values give more varied batches', at_most=16384, at_least=1
    )
    preprocess: bool | None = option(None, 'Atari preprocessing; on by default if the environment is an Atari game')
    max_frame: bool = choice(
        True, 'without effect: Atari preprocessing always takes the maximum of two frames if frames are skipped'
    )
    max_episode_steps: int | None = count(
        None,
        "steps after which an episode is truncated, instead of the environment's own limit; larger values "
        'allow longer episodes',
    )
    env_kwargs: dict | None = option(None, 'arguments of the environment, as key=value', metavar='KEY=VALUE')
    vector: str = choice(
        'auto',
        "how environments run in parallel: in a loop, in processes, compiled into training, by Gymnasium's own vector, "
        'or by EnvPool',
        choices=('auto', 'sync', 'async', 'compiled', 'native', 'envpool'),
    )
    frame_stack: int | None = choice(
        None,
        'frames in one image observation, 4 by default with Atari preprocessing; larger values show more of the past',
        at_least=1,
    )
    frame_skip: int | None = count(
        None,
        'steps for which each action is repeated, 4 by default with Atari preprocessing; larger values act less often',
    )
    grey: bool = option(False, 'make image observations grey')
    resize: list[int] | None = count(
        None,
        'height and width of image observations, or one number for both; larger images show more and take longer',
        metavar='PIXELS',
    )
    clip_rewards: bool = option(True, 'Atari: learn from the signs of rewards')
    episodic_life: bool = option(True, 'Atari: a lost life ends an episode during training')
    fire_reset: bool = option(True, 'Atari: press FIRE after a reset, if the game has that action')
    sticky_actions: bool = option(False, 'Atari: repeat the last action with probability 0.25')
    wrapper: list[str] | None = option(
        None,
        'Gymnasium wrappers around each environment, as module:Class, each followed by its arguments as key=value',
        metavar='MODULE:CLASS',
    )
    flatten: bool = option(False, 'learn from image observations as plain vectors, with dense networks')
    mask_key: str | None = option(
        'action_mask',
        'key of the action mask, which limits the agent to legal actions, in observations or infos; none: no masks',
        metavar='KEY',
    )
    critic_only: list[str] | None = option(
        None,
        'keys of a Dict observation that critics receive and the policy does not, which acts without them',
        metavar='KEY',
    )
    imports: list[str] | None = option(
        None,
        'modules to import first, which register agents, networks, stages and environments',
        aliases=('import',),
        metavar='MODULE',
    )
    agent_index: bool = option(
        False, 'several agents in one environment: append the one-hot index of an agent to its observation'
    )


@dataclasses.dataclass
class NetworkOptions(Options):
    """Options of a network without a file."""

    net: list[int] | None = count(
        None,
        'widths of the layers of a dense network, instead of a .cfg file; larger values can learn more and are slower',
        metavar='UNITS',
    )
    activation: str | None = choice(
        None, 'activation of the layers of --net', choices=('tanh', 'relu', 'elu', 'selu', 'gelu', 'silu', 'sigmoid')
    )
    initializer: str | None = choice(
        None,
        'initial weights of --net: orthogonal with a small last layer of the policy, Glorot, or uniform in ±1/√inputs',
        choices=('orthogonal', 'glorot_uniform', 'fan_in_uniform'),
    )
    normalize_layers: str | None = choice(
        None,
        'normalise the layers of --net: each row before the activation, the batch (not for on-policy agents), or none; '
        'by default batch for CrossQ, layer for PQN, and none for the other agents',
        choices=('layer', 'batch', 'none'),
    )
    block: str | None = choice(
        None,
        'build --net from residual blocks, one for each width, with layer normalisation; also normalises observations '
        '(SimBa)',
        choices=('simba',),
    )
    memory: int | None = count(
        None,
        'units of a recurrent layer before the outputs, which remembers earlier observations of an episode; larger '
        'values remember more and are slower',
        metavar='UNITS',
        tune='categorical',
    )
    memory_kind: str = choice(
        'gru', 'layer of --memory: GRU, or LSTM with twice the state, which is slower', choices=('gru', 'lstm')
    )
    shared_network: bool = option(False, 'share one trunk between actor and critic, if one network has both outputs')
