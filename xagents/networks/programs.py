"""Compiled programs: one call for a whole update, and the fastest method of inference for acting."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, TypeGuard

import keras
import numpy as np
import tensorflow as tf

from xagents.networks.acting import PublishedWeights
from xagents.networks.keras_to_plan import flat_parameters, has_plan, plan_from_model, without_noise
from xagents.networks.memory import memory_units, sequence_outputs, step_outputs, with_memory_of
from xagents.networks.numpy_inference import NumpyNetwork
from xagents.system.compilation_cache import cached_compilation, recover_from_full_disk
from xagents.system.threads import threads_in_use

MAX_PACKED_BYTES = 2**16  # bytes; passing a smaller array as a tensor takes longer than copying it


Key = tuple[tuple[np.dtype, tuple[int, ...]], ...]  # dtypes and shapes of arguments


class CompiledFunction(NamedTuple):
    """A compiled function of a program for one set of argument shapes.

    Attributes:
        key: dtypes and shapes of the arguments.
        traced: concrete function.
        variable_indices: indices of the variables that it reads and writes among the variables of its agent.
    """

    key: Key
    traced: Any
    variable_indices: list[int]


class Program:
    """A function that is traced and compiled once for each set of argument shapes, and called with NumPy arrays.

    Calls use the concrete function. They skip the checks of arguments in `tf.function`, half the time of a small call.
    Passing an array takes 10 to 40 µs for any size, and six times as long after a large update. Small arrays are
    therefore passed as one vector, in memory that a tensor shares permanently. A lock serialises calls of threads.

    Args:
        function: function from tensors to tensors.
        jit: whether to compile the function with XLA.

    Attributes:
        traces: number of traces so far.
    """

    _recorded: ClassVar[list[Program] | None] = None

    def __init__(self, function: Callable, jit: bool):
        self._function = function
        self._jit = jit
        self._compiled: dict[Key, tuple[ArgumentPacker, Any, list[Any], Callable]] = {}
        self._lock = threading.Lock()
        self.traces = 0
        if Program._recorded is not None:
            Program._recorded.append(self)

    def __call__(self, *arguments: Any) -> Any:
        """Run the program with arrays and numbers; floats become float32, whole numbers int32."""
        leaves = tf.nest.flatten(arguments)
        arrays = [a if isinstance(a, np.ndarray) else np.asarray(a, _NUMBERS.get(type(a))) for a in leaves]
        key = tuple((a.dtype, a.shape) for a in arrays)
        with self._lock:
            if key in self._compiled:
                packer, *_, call = self._compiled[key]
                return call(*packer.pack(arrays))
            return self._compile(key, arrays, arguments)

    def _compile(self, key: Key, arrays: Sequence[np.ndarray], arguments: Any) -> Any:
        """Trace and compile the function for arguments of new shapes, and run it with them."""
        packer = ArgumentPacker(key, self._jit)
        packed = packer.pack(arrays)
        specifications = [tf.TensorSpec(t.shape, t.dtype) for t in packed]
        traced = self._trace(packer, arguments).get_concrete_function(*specifications)
        captured = traced.captured_inputs
        call = _fast_call(traced, captured)
        # the first call compiles, even if XLA compiles only a part; the key is what a program depends on in addition to
        # its source and the processor
        with cached_compilation(f'{tf.__version__} {threads_in_use()}'):
            try:
                result = call(*packed)
            except tf.errors.OpError:
                # if XLA cannot write a file, the call fails before the program has run
                if not self._jit or not recover_from_full_disk():
                    raise
                result = call(*packed)
        self._compiled[key] = packer, traced, captured, call
        _trim_memory()
        return result

    # sharing with programs of another agent, which has equal variables

    @classmethod
    @contextlib.contextmanager
    def record_programs(cls, programs: list[Program]) -> Iterator[None]:
        """Append the programs that the block creates to a list."""
        before, cls._recorded = cls._recorded, programs
        try:
            yield
        finally:
            cls._recorded = before

    def compiled_functions(self, variables: Sequence[tf.Variable]) -> list[CompiledFunction]:
        """Return the compiled functions that read and write only the given variables."""
        variable_indices = {id(variable.handle): place for place, variable in enumerate(variables)}
        found = [
            CompiledFunction(key, traced, [variable_indices.get(id(handle), -1) for handle in captured])
            for key, (_, traced, captured, _) in self._compiled.items()
        ]
        return [one for one in found if -1 not in one.variable_indices and _fast_call(one.traced, []) is not one.traced]

    def adopt(self, compiled: Sequence[CompiledFunction], variables: Sequence[tf.Variable]) -> None:
        """Reuse the compiled functions of an equivalent program, bound to the variables of this program's agent."""
        for key, traced, variable_indices in compiled:
            captured = [variables[place].handle for place in variable_indices]
            self._compiled[key] = ArgumentPacker(key, self._jit), traced, captured, _fast_call(traced, captured)

    def _trace(self, packer: ArgumentPacker, template: Any) -> Any:
        def unpack(*packed: tf.Tensor) -> Any:
            self.traces += 1
            return self._function(*tf.nest.pack_sequence_as(template, packer.unpack(packed)))

        # loops use tf.while_loop and tf.scan, because AutoGraph would delay every start by two seconds
        return tf.function(unpack, jit_compile=self._jit, autograph=False)


def _fast_call(traced: Any, captured: list[Any]) -> Callable:
    """Return a function that calls a concrete function without its checks, half the time of a small call.

    This uses private functions of TensorFlow. If they do not exist or have other parameters, return `traced`.
    """
    outputs, function = traced.structured_outputs, getattr(traced, '_inference_function', None)
    run = getattr(getattr(function, '_bound_context', None), 'call_function', None)
    plain = type(outputs) is tuple and all(map(tf.is_tensor, outputs))
    if function is not None and plain and _has_parameters(run, 'name', 'tensor_inputs', 'num_outputs'):
        name, n = function.name, len(outputs)
        # `_alive` keeps a reference, without which the function would be deleted
        return lambda *tensors, _alive=traced: run(name, [*tensors, *captured], n)
    call = getattr(traced, '_call_flat', None)
    if _has_parameters(call, 'tensor_inputs', 'captured_inputs'):
        return lambda *tensors: call(list(tensors), captured)
    return traced


def _has_parameters(function: Callable | None, *names: str) -> TypeGuard[Callable]:
    return callable(function) and tuple(inspect.signature(function).parameters) == names


_NUMBERS: dict[type, Any] = {float: np.float32, int: np.int32}


class ArgumentPacker:
    """Packs arrays for a program: small arrays together as one vector of words of 32 bits.

    Args:
        key: dtypes and shapes of the arrays.
        shares: whether the words are in memory that a tensor shares permanently. A graph without XLA needs a copy,
            because it may keep its arguments, for example in a variable.
    """

    def __init__(self, key: Key, shares: bool):
        self._key = key
        sizes = [math.prod(shape) for _, shape in key]
        self._separate = [i for i, (d, _) in enumerate(key) if d not in _WORDS or 4 * sizes[i] > MAX_PACKED_BYTES]
        self._joined = [i for i in range(len(key)) if i not in self._separate]
        self._sizes = [sizes[i] for i in self._joined]
        self._words = _aligned(sum(self._sizes))
        parts = zip(np.split(self._words, np.cumsum(self._sizes)), self._joined, strict=False)
        # the place of each array in the words
        self._places = [(_view(part, *key[i]), i) for part, i in parts]
        shares = shares and not tf.config.list_logical_devices('GPU')  # a device may read the memory later
        self._tensor = tf.experimental.dlpack.from_dlpack(self._words.__dlpack__()) if shares else None

    def pack(self, arrays: Sequence[np.ndarray]) -> list[tf.Tensor]:
        """Return the tensors for a call, which must end before the next `pack`."""
        for place, i in self._places:
            place[...] = arrays[i]
        words = tf.constant(self._words.copy()) if self._tensor is None else self._tensor
        return [words, *(tf.constant(arrays[i]) for i in self._separate)]

    def unpack(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return the arrays as tensors; the program calls this method."""
        words, *separate = tensors
        parts = tf.split(words, [*self._sizes, -1])[:-1]
        found = {i: _out_of_words(part, self._key[i][0]) for i, part in zip(self._joined, parts, strict=True)}
        found |= dict(zip(self._separate, separate, strict=True))
        return [tf.reshape(found[i], shape) for i, (_, shape) in enumerate(self._key)]


_WORDS = (np.dtype(np.float32), np.dtype(np.int32), np.dtype(bool))
ALIGNMENT = 64  # bytes; code of XLA crashes with less


def _aligned(n: int) -> np.ndarray:
    """Return memory for at least n int32 words, aligned so that a tensor can share it."""
    memory = np.zeros(max(n, 1) * 4 + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + max(n, 1) * 4].view(np.int32)


def _view(words: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Return words of int32 as the array into which an argument is copied: floats as their bits, bools as 0 and 1."""
    return words.view(np.float32 if dtype == np.float32 else np.int32).reshape(shape)


def _out_of_words(words: tf.Tensor, dtype: np.dtype) -> tf.Tensor:
    """Undo `_view`."""
    if dtype == np.int32:
        return words
    return tf.bitcast(words, tf.float32) if dtype == np.float32 else words != 0


def _trim_memory() -> None:
    """Return memory that the compiler freed to the system; glibc would keep some 140 MB of it."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL('libc.so.6').malloc_trim(0)


def has_convolutions(model: keras.Model) -> bool:
    """Return whether a model has convolutions. On a CPU, oneDNN then is faster than XLA, and threads help."""
    return any('Conv' in type(layer).__name__ for layer in model.layers)


def suits_xla(*models: keras.Model) -> bool:
    """Return whether XLA is faster than a graph for models.

    On a CPU, oneDNN is faster for convolutions and for products in bfloat16, which XLA converts to float32.
    """
    return not any(in_bfloat16(model) or has_convolutions(model) for model in models)


def in_bfloat16(model: keras.Model) -> bool:
    """Return whether a layer of a model computes in bfloat16."""
    return any(layer.compute_dtype == 'bfloat16' for layer in model.layers)


def network_input(observations: Any) -> tf.Tensor:
    """Return observations as float32 network input; bytes are scaled to numbers from 0 to 1."""
    if observations.dtype == tf.uint8:
        return tf.cast(observations, tf.float32) / 255.0
    return observations


def float_outputs(outputs: Any) -> list[tf.Tensor]:
    """Return the outputs of a model, one tensor [B, units] or several, as a list of float32 tensors."""
    return [tf.cast(x, tf.float32) for x in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]


def model_outputs(
    model: keras.Model, inputs: Any, memory: tf.Tensor | None = None, keep: tf.Tensor | None = None
) -> list[tf.Tensor]:
    """Return the outputs of a model in training, float32 [B, units] each.

    Args:
        model: the model.
        inputs: the network inputs [B, *D].
        memory: with memory, that before the first step of each sequence (see `sequence_outputs`).
        keep: with memory, 0 in rows after which it becomes zeros.
    """
    if memory is not None and keep is not None:
        return float_outputs(sequence_outputs(model, inputs, memory, keep)[0])
    return float_outputs(model(inputs, training=True))


class TracedNetwork:
    """A Keras model with other weights than its own as an acting network of tensors, within a compiled program.

    Args:
        model: the model.
        n_outputs: the number of its first outputs that the network returns.
        weights: all weights, float32 [P], in the order of the model.
    """

    def __init__(self, model: keras.Model, n_outputs: int, weights: tf.Tensor):
        self.model, self._n_outputs = model, n_outputs
        self.memory_units = memory_units(model)
        parts = tf.split(weights, [math.prod(v.shape) for v in model.weights]) if model.weights else []
        self._mapping = [
            (variable, tf.cast(tf.reshape(part, variable.shape), variable.dtype))
            for variable, part in zip(model.weights, parts, strict=True)
        ]

    def __call__(
        self, observations: tf.Tensor, noise: tf.Tensor | None = None, memory: tf.Tensor | None = None
    ) -> list[tf.Tensor]:
        """See `ActingNetwork`, with tensors."""
        x = network_input(observations)
        model = self.model if noise is not None or len(self.model.inputs) == 1 else without_noise(self.model)
        inputs = x if noise is None else [x, noise]
        with keras.StatelessScope(state_mapping=self._mapping):
            if not self.memory_units:
                return float_outputs(model(inputs, training=False))[: self._n_outputs]
            outputs, after = step_outputs(model, inputs, memory)
        return [*float_outputs(outputs)[: self._n_outputs], after]


class KerasNetwork:
    """A Keras model as an acting network: inference in NumPy by its plan if it has one, otherwise by a graph.

    Explorers compute the same outputs from the plan.

    Args:
        model: Keras model of one input; the noise of noisy layers is a second one.
        dtype: dtype of the observations [N, *D]; bytes are scaled to numbers from 0 to 1.
        whole: the model whose memory the network computes, if that is more than the memory of `model`.

    Raises:
        ValueError: if a model with recurrent layers has no plan.

    Attributes:
        plan: plan of the model, or None.
        traces: number of traces of the graph so far; 0 in NumPy.
    """

    def __init__(self, model: keras.Model, dtype: Any = np.float32, whole: keras.Model | None = None):
        self.model, self._whole = model, whole
        self._computed = with_memory_of(model, whole)
        self._dtype = np.dtype(dtype)
        self.plan = plan_from_model(self._computed, len(model.outputs)) if has_plan(self._computed) else None
        if self.plan is None and memory_units(self._computed):
            raise ValueError(
                'model: got recurrent layers with layers that have no plan, expected those in docs/policy.md'
            )
        self._numpy = None if self.plan is None else NumpyNetwork(self.plan, self.flat_weights().numpy())
        self._flat = Program(self.flat_weights, jit=False)
        self._version = 0
        self._graphs: dict[bool, Callable] = {}
        self.traces = 0
        self.refresh()

    def refresh(self, vector: tf.Tensor | None = None) -> None:
        """Use new flat weights, those that an update returned or, by default, the present weights of the model."""
        self._version += 1
        if self._numpy is not None:
            # numpy() would make another copy
            self._numpy.refresh(np.asarray(memoryview(self._flat() if vector is None else vector)))

    @property
    def memory_units(self) -> int:
        """The length of the memory of one row; 0 without recurrent layers."""
        return 0 if self.plan is None else self.plan.memory_units

    def __call__(
        self, observations: np.ndarray, noise: np.ndarray | None = None, memory: np.ndarray | None = None
    ) -> Sequence[np.ndarray]:
        """See `ActingNetwork`."""
        if self._numpy is not None:
            return self._numpy(observations, noise, memory)
        noisy = noise is not None
        if noisy not in self._graphs:
            self._graphs[noisy] = self._traced(noisy)
        inputs = [tf.constant(observations, self._dtype), *([tf.constant(noise)] if noisy else [])]
        return [output.numpy() for output in self._graphs[noisy](*inputs)]

    def copy(self) -> KerasNetwork:
        """Return a network with a copy of the weights, which only `sync` changes."""
        # a NumpyNetwork always copies its weights
        model = self.model if self._numpy is not None else keras.models.clone_model(self.model)
        other = KerasNetwork(model, self._dtype, self._whole)
        other.sync(self.published_weights)
        return other

    @property
    def published_weights(self) -> PublishedWeights:
        """The present weights for copies of the network; the next refresh may overwrite the array."""
        if self._numpy is not None:
            return self._numpy.published_weights._replace(version=self._version)
        weights = [np.ravel(v.numpy()) for v in self.model.weights]
        return PublishedWeights(self._version, np.concatenate(weights, dtype=np.float32))

    def sync(self, published_weights: PublishedWeights) -> None:
        """Replace weights and version by those that a network of the same kind published."""
        self._version = published_weights.version
        if self._numpy is not None:
            self._numpy.sync(published_weights)
            return
        ends = np.cumsum([math.prod(v.shape) for v in self.model.weights])
        for variable, part in zip(self.model.weights, np.split(published_weights.weights, ends[:-1]), strict=True):
            variable.assign(part.reshape(variable.shape))

    def with_weights(self, weights: tf.Tensor) -> TracedNetwork:
        """Return the network as a function of tensors, with weights in the form of `published_weights`."""
        return TracedNetwork(self._computed, len(self.model.outputs), weights)

    def flat_weights(self) -> tf.Tensor:
        """Return the argument of `refresh` in a compiled update: flat weights; an empty tensor if a graph is used."""
        return tf.zeros(0) if self.plan is None else flat_parameters(self._computed)

    def _traced(self, noisy: bool) -> Callable:
        """Trace the model for any number of observations, with noise or with mean weights."""
        self.traces += 1
        first, *others = self.model.inputs
        model = self.model if noisy else without_noise(self.model)
        specifications = [tf.TensorSpec((None, *first.shape[1:]), self._dtype)]
        specifications += [tf.TensorSpec(x.shape, tf.float32) for x in others if noisy]

        def outputs(observations: tf.Tensor, *noise: tf.Tensor) -> tuple[tf.Tensor, ...]:
            x = network_input(observations)
            return tuple(float_outputs(model([x, *noise] if noise else x, training=False)))

        traced = tf.function(outputs, autograph=False).get_concrete_function(*specifications)
        return _fast_call(traced, traced.captured_inputs)
