"""Simulators with state outside Python attributes (MuJoCo and the ALE), identified by the names of their classes."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

# Prefixes of arrays that MuJoCo computes in every step, in an arena whose layout changes with the contacts.
_ARENA = ('efc_', 'iefc_', 'efm_', 'ifrc_', 'iacc', 'island_', 'map_')
_ARENA_ENDS = ('_island', '_efcadr')
# Addresses of plugins' memory.
_ADDRESSES = ('plugin', 'plugin_data')
# Numbers of an MjData in addition to its arrays: the time and the counts of awake bodies. The flags `flg_*`, computed
# since the last step, are added in `_names`.
_DATA_NUMBERS = ('time', 'ntree_awake', 'nbody_awake', 'nv_awake', 'nparent_awake')

# The graphics chip in an ALE state: its name, then 32-bit integers, of which the sixth and seventh count lines.
_TIA = b'TIA'

WriteFunction = Callable[[], None]


def simulator_of(kind: type) -> str:
    """Return 'data' for MuJoCo's MjData, 'model' for its MjModel, 'ale' for an ALEInterface, '' for anything else."""
    package = getattr(kind, '__module__', '').partition('.')[0]
    names = {('mujoco', 'MjData'): 'data', ('mujoco', 'MjModel'): 'model', ('ale_py', 'ALEInterface'): 'ale'}
    return names.get((package, kind.__name__), '')


def read_simulator(simulator: Any) -> tuple[np.ndarray, list[Any]]:
    """Return a simulator's complete state: its bytes, uint8 of any length, and a description of their layout for JSON.

    Raises:
        ValueError: if a part of the state cannot be read; the message continues a sentence after "holds ".
    """
    sort = simulator_of(type(simulator))
    if sort == 'ale':
        if simulator.getFloat('repeat_action_probability') > 0:
            # no saved state contains the previous action, which may be repeated
            raise ValueError('an ALEInterface that repeats actions by itself')
        if simulator.getBool('color_averaging') or simulator.getBool('sound_obs'):
            raise ValueError('an ALEInterface that averages colours or plays sound')
        # The complete system: the machine, its random generator and the frame count.
        state = simulator.cloneSystemState().serialize()
        if not _frame_is_whole(state):
            raise ValueError('an ALEInterface in the middle of a frame')
        return np.frombuffer(state, np.uint8), []
    if sort == 'data' and simulator.nplugin:
        raise ValueError('an MjData with plugins')
    arrays = _arrays(simulator)
    joined = b''.join([array.tobytes() for array in arrays])
    numbers = [getattr(owner, name) for owner, name in _numbers(simulator)]
    return np.frombuffer(joined, np.uint8), [_layout(simulator, arrays), *numbers]


def write_simulator(simulator: Any, state: np.ndarray, meaning: list[Any]) -> WriteFunction:
    """Check a state of `read_simulator`, and return a function that writes it to a simulator of the same game or model.

    The state excludes MuJoCo's contacts and constraints: they are empty until the next step computes them.
    """
    if simulator_of(type(simulator)) == 'ale':
        return _ale_write(simulator, state)
    arrays, places = _arrays(simulator), _numbers(simulator)
    layout, *numbers = meaning
    fits = layout == _layout(simulator, arrays) and len(numbers) == len(places)
    if not fits or len(state) != sum(array.nbytes for array in arrays):
        raise ValueError('snapshot: its MuJoCo state is of another model or version')

    def write() -> None:
        if simulator_of(type(simulator)) == 'data':
            import mujoco

            mujoco.mj_resetData(simulator.model, simulator)  # also empties the arena
        start = 0
        for array in arrays:
            array[...] = state[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
            start += array.nbytes
        for (owner, name), value in zip(places, numbers, strict=True):
            setattr(owner, name, value)

    return write


def _ale_write(ale: Any, state: np.ndarray) -> WriteFunction:
    import ale_py

    before = ale.cloneSystemState()
    try:
        # Only a trial distinguishes a valid state from garbage: a restored state must be read back unchanged.
        saved = ale_py.ALEState(state.tobytes())
        ale.restoreSystemState(saved)
        if ale.cloneSystemState().serialize() != state.tobytes():
            raise ValueError('other bytes')
    except Exception as error:
        raise ValueError('snapshot: its ALE state is damaged, or of another game or version') from error
    finally:
        ale.restoreSystemState(before)

    def write() -> None:
        # No saved state contains whether the last frame was cut short: the emulator must first finish a frame.
        for _ in range(100):
            ale.act(0)
            if _frame_is_whole(ale.cloneSystemState().serialize()):
                break
        ale.restoreSystemState(saved)

    return write


def _frame_is_whole(state: bytes) -> bool:
    """Return whether the last frame of an ALE state is complete.

    Qbert draws nothing at its start, for so long that the emulator cuts a frame short.
    """
    start = state.find(_TIA) + len(_TIA)
    finished, current = np.frombuffer(state[start : start + 32], '<i4')[5:7]
    return bool(finished == current)


def simulator_arrays(simulator: Any) -> list[np.ndarray]:
    """Return the arrays that share a simulator's memory."""
    return [] if simulator_of(type(simulator)) == 'ale' else _arrays(simulator)


def _arrays(simulator: Any) -> list[np.ndarray]:
    """Return the arrays of an MjData that a step depends on, or the arrays of an MjModel that a user may change."""
    names = _names(simulator)
    arrays = [getattr(simulator, name) for name in names.arrays]
    return arrays + [getattr(simulator.opt, name) for name in names.option_arrays]


class _Names(NamedTuple):
    """The names of array and number attributes of a simulator and of its `opt`."""

    arrays: list[str]
    numbers: list[str]
    option_arrays: list[str]
    option_numbers: list[str]


_NAMES: dict[type, _Names] = {}


def _names(simulator: Any) -> _Names:
    """Return the names of state attributes, which are equal for all simulators of a class."""
    kind = type(simulator)
    if kind not in _NAMES:
        arrays, numbers = _arrays_and_numbers(simulator)
        if simulator_of(kind) == 'data':
            inside = [n for n in arrays if not n.startswith(_ARENA) and not n.endswith(_ARENA_ENDS)]
            state = [n for n in numbers if n in _DATA_NUMBERS or n.startswith('flg_')]
            _NAMES[kind] = _Names([n for n in inside if n not in _ADDRESSES], state, [], [])
        else:
            # Masses, frictions, gains, terrain etc. A model's integers are its structure; the rest is for rendering.
            arrays = [n for n in arrays if getattr(simulator, n).dtype == np.float64 or n == 'hfield_data']
            arrays = [n for n in arrays if not n.startswith(('mesh', 'skin', 'bvh', 'oct'))]
            _NAMES[kind] = _Names(arrays, [], *_arrays_and_numbers(simulator.opt))
    return _NAMES[kind]


def _arrays_and_numbers(owner: Any) -> tuple[list[str], list[str]]:
    """Return the names of an object's array attributes and of its number attributes."""
    values = {name: getattr(owner, name) for name in dir(owner) if not name.startswith('_')}
    arrays = [name for name, value in values.items() if isinstance(value, np.ndarray)]
    return arrays, [name for name, value in values.items() if isinstance(value, bool | int | float)]


def _layout(simulator: Any, arrays: list[np.ndarray]) -> int:
    """Return a checksum of the names and shapes of arrays."""
    return zlib.crc32(f'{_names(simulator)}{[array.shape for array in arrays]}'.encode())


def _numbers(simulator: Any) -> list[tuple[Any, str]]:
    """Return the owner and name of each number that is not an array."""
    names = _names(simulator)
    numbers = [(simulator, name) for name in names.numbers]
    return numbers + [(simulator.opt, name) for name in names.option_numbers]
