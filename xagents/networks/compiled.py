"""Compiled programs: one call for a whole update, and acting by whichever way is fastest."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from xagents.networks.acting import Published
from xagents.networks.forward import NumpyNetwork
from xagents.networks.mirror import flat_parameters, has_plan, plan_of
from xagents.system.kept_programs import compiling
from xagents.system.threads import threads_in_use

SMALL = 2**16  # bytes: what is smaller costs more to hand over than to copy


Key = tuple[tuple[np.dtype, tuple[int, ...]], ...]  # dtypes and shapes of arguments


class Compiled(NamedTuple):
    """What a program has compiled for arguments of some shapes.

    Attributes:
        key: the shapes.
        groups: which arguments travel together.
        traced: the concrete function.
        places: of the variables that it reads and writes, among those of its agent.
    """

    key: Key
    groups: list[list[int]]
    traced: Any
    places: list[int]


class Program:
    """A function that is traced and compiled once for each shape of its arguments, and called with NumPy arrays.

    Calling the concrete function with tensors leaves out `tf.function`'s look at every argument, half of a small call.
    Handing an array over costs 10 to 40 µs whatever its size, so the small ones travel as one vector.

    Args:
        function: takes and returns tensors.
        jit: whether XLA compiles it.
    """

    _noted: ClassVar[list[Program] | None] = None

    def __init__(self, function: Callable, jit: bool):
        self._function = function
        self._jit = jit
        self._compiled: dict[Key, tuple[list[list[int]], Any, list[Any], Callable]] = {}
        self.traces = 0
        if Program._noted is not None:
            Program._noted.append(self)

    def __call__(self, *arguments: Any) -> Any:
        """Run it with arrays and numbers; floats become float32, whole ones int32."""
        leaves = tf.nest.flatten(arguments)
        arrays = [a if isinstance(a, np.ndarray) else np.asarray(a, _NUMBERS.get(type(a))) for a in leaves]
        key = tuple((a.dtype, a.shape) for a in arrays)
        if key in self._compiled:
            groups, *_, call = self._compiled[key]
            return call(*_packed(arrays, groups))
        groups = _groups(arrays)
        packed = _packed(arrays, groups)
        specifications = [tf.TensorSpec(t.shape, t.dtype) for t in packed]
        traced = self._trace(arrays, groups, arguments).get_concrete_function(*specifications)
        captured = traced.captured_inputs
        call = _directly(traced, captured)
        # XLA compiles in the first call
        with compiling(_kind()) if self._jit else contextlib.nullcontext():
            result = call(*packed)
        self._compiled[key] = groups, traced, captured, call
        _return_memory()
        return result

    # for programs of another agent, whose variables stand in the places of these

    @classmethod
    @contextlib.contextmanager
    def noted_in(cls, programs: list[Program]) -> Iterator[None]:
        """Add the programs that are made in the block to a list."""
        before, cls._noted = cls._noted, programs
        try:
            yield
        finally:
            cls._noted = before

    def compiled(self, variables: Sequence[tf.Variable]) -> list[Compiled]:
        """Return what was compiled, as far as it reads and writes nothing but these variables."""
        places = {id(variable.handle): place for place, variable in enumerate(variables)}
        found = [
            Compiled(key, groups, traced, [places.get(id(handle), -1) for handle in captured])
            for key, (groups, traced, captured, _) in self._compiled.items()
        ]
        return [one for one in found if -1 not in one.places and hasattr(one.traced, '_call_flat')]

    def adopt(self, compiled: Sequence[Compiled], variables: Sequence[tf.Variable]) -> None:
        """Take over what an equal program has compiled, with variables of its own in the places of that one's."""
        for key, groups, traced, places in compiled:
            captured = [variables[place].handle for place in places]
            self._compiled[key] = groups, traced, captured, _directly(traced, captured)

    def _trace(self, arrays: list[np.ndarray], groups: list[list[int]], like: Any) -> Any:
        shapes = [a.shape for a in arrays]

        def unpacked(*packed: tf.Tensor) -> Any:
            self.traces += 1
            tensors: list[Any] = [None] * len(shapes)
            for tensor, members in zip(packed, groups, strict=True):
                parts = tf.split(tensor, [math.prod(shapes[i]) for i in members]) if len(members) > 1 else [tensor]
                for i, part in zip(members, parts, strict=True):
                    tensors[i] = tf.reshape(_out_of_words(part, arrays[i].dtype), shapes[i])
            return self._function(*tf.nest.pack_sequence_as(like, tensors))

        # loops are written as tf.while_loop and tf.scan: translating Python's takes two seconds of every start
        return tf.function(unpacked, jit_compile=self._jit, autograph=False)


def _directly(traced: Any, captured: list[Any]) -> Callable:
    """Return a call of a concrete function that does not look at its arguments, a third of a small call's time."""
    call = getattr(traced, '_call_flat', None)
    if call is None:  # a release of TensorFlow that lacks it
        return traced
    return lambda *tensors: call(list(tensors), captured)


_NUMBERS: dict[type, Any] = {float: np.float32, int: np.int32}


def _groups(arrays: list[np.ndarray]) -> list[list[int]]:
    """Return the indices of arrays that travel together: small ones as words of 32 bits, each other one alone."""
    small: dict[Any, list[int]] = {}
    for i, a in enumerate(arrays):
        small.setdefault(np.int32 if a.nbytes <= SMALL and a.dtype in _WORDS else i, []).append(i)
    return list(small.values())


def _packed(arrays: list[np.ndarray], groups: list[list[int]]) -> list[tf.Tensor]:
    return [
        tf.constant(
            arrays[members[0]] if len(members) == 1 else np.concatenate([_words(arrays[i]).ravel() for i in members])
        )
        for members in groups
    ]


_WORDS = (np.dtype(np.float32), np.dtype(np.int32), np.dtype(bool))


def _words(array: np.ndarray) -> np.ndarray:
    """Return an array as int32: the bits of floats, 0 and 1 of bools."""
    return (
        np.ascontiguousarray(array).view(np.int32) if array.dtype == np.float32 else array.astype(np.int32, copy=False)
    )


def _out_of_words(words: tf.Tensor, dtype: np.dtype) -> tf.Tensor:
    """Undo `_words`, where they are some."""
    if words.dtype != tf.int32 or dtype == np.int32:
        return words
    return tf.bitcast(words, tf.float32) if dtype == np.float32 else words != 0


def _kind() -> str:
    """Return what a compiled program depends on beside its source and the processor."""
    return f'{tf.__version__} {threads_in_use()}'


def _return_memory() -> None:
    """Give back what the compiler freed: glibc would keep some 140 MB of it for ever."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL('libc.so.6').malloc_trim(0)


def has_convolutions(model: keras.Model) -> bool:
    """Return whether a model convolves: then XLA is slower than oneDNN on a CPU, and threads help."""
    return any('Conv' in type(layer).__name__ for layer in model.layers)


def network_input(observations: Any) -> tf.Tensor:
    """Return observations as a network's input: float32; bytes become numbers from 0 to 1."""
    if observations.dtype == tf.uint8:
        return tf.cast(observations, tf.float32) / 255.0
    return observations


def float_outputs(outputs: Any) -> list[tf.Tensor]:
    """Return what a model gave, one tensor [B, units] or several, as a list in float32."""
    return [tf.cast(x, tf.float32) for x in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]


class Actor:
    """A network's outputs as NumPy arrays: by its plan where it has one, as explorers compute them; else by a graph.

    The model takes observations [N, *D] of `dtype`; bytes become numbers from 0 to 1.
    """

    def __init__(self, model: keras.Model, dtype: Any = np.float32):
        self.model = model
        self._dtype = np.dtype(dtype)
        self.plan = plan_of(model) if has_plan(model) else None
        self._numpy = self._by_plan()
        self._flat = Program(self.flat_weights, jit=False)
        self._version = 0
        specification = tf.TensorSpec((None, *model.input_shape[1:]), self._dtype)
        self._graph = tf.function(self._outputs, input_signature=[specification], autograph=False)
        self.refresh()

    def _by_plan(self) -> NumpyNetwork | None:
        return None if self.plan is None else NumpyNetwork(self.plan, flat_parameters(self.model).numpy())

    def refresh(self, vector: np.ndarray | None = None) -> None:
        """Take over the flat weights that an update returned; the model's present ones when not given."""
        self._version += 1
        if self._numpy is not None:
            self._numpy.refresh(self._flat().numpy() if vector is None else vector)

    def __call__(self, observations: np.ndarray) -> Sequence[np.ndarray]:
        """Return the outputs [N, units] for observations [N, *D]; the arrays are overwritten by the next call."""
        if self._numpy is not None:
            return self._numpy(observations)
        return [output.numpy() for output in self._graph(observations)]

    def copy(self) -> Actor:
        """Return an actor with weights of its own, which only `sync` renews."""
        # NumPy's weights are its own anyway
        model = self.model if self._numpy is not None else keras.models.clone_model(self.model)
        other = Actor(model, self._dtype)
        if not self.alike:
            other.alike = False
        other.sync(self.published)
        return other

    @property
    def alike(self) -> bool:
        """Whether a row has the same bits among any others; a graph does not say."""
        return self._numpy is not None and self._numpy.alike

    @alike.setter
    def alike(self, alike: bool) -> None:
        if self.plan is None:
            return
        if self.plan.differs:  # runs that began when such networks acted by the graph go on so
            self._numpy = self._by_plan() if alike else None
        elif self._numpy is not None:
            self._numpy.alike = alike

    @property
    def published(self) -> Published:
        """The present weights, for actors that are copies; the next refresh may overwrite the array."""
        if self._numpy is not None:
            return self._numpy.published._replace(version=self._version)
        weights = [np.ravel(v.numpy()) for v in self.model.weights]
        return Published(self._version, np.concatenate(weights, dtype=np.float32))

    def sync(self, published: Published) -> None:
        """Take over the weights of an actor of the same kind, and their version."""
        self._version = published.version
        if self._numpy is not None:
            self._numpy.sync(published)
            return
        ends = np.cumsum([math.prod(v.shape) for v in self.model.weights])
        for variable, part in zip(self.model.weights, np.split(published.weights, ends[:-1]), strict=True):
            variable.assign(part.reshape(variable.shape))

    def flat_weights(self) -> tf.Tensor:
        """Return what a compiled update gives to `refresh`: flat weights; nothing where a graph reads the model."""
        return flat_parameters(self.model) if self._numpy is not None else tf.zeros(0)

    @property
    def traces(self) -> int:
        """How often acting was traced: 0 in NumPy."""
        return self._graph.experimental_get_tracing_count()

    def _outputs(self, observations: tf.Tensor) -> list[tf.Tensor]:
        return float_outputs(self.model(network_input(observations), training=False))
