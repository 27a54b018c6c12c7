"""A network plan as C statements, with the weights as constants and one scratch array for all tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from xagents.networks.plan import BYTE_KINDS, GATES, NORM_WEIGHTS, LayerCall, NetworkPlan

# layers whose output is a part of their input
_VIEWS = ('flatten', 'same', 'part', 'vector-bytes')
_NUMBERS_IN_A_LINE = 8


def c_number(value: Any) -> str:
    """Return a number as a constant of C. A constant of a float32 has the same bits."""
    if isinstance(value, float | np.floating):
        if not np.isfinite(value):
            return 'NAN' if np.isnan(value) else 'INFINITY' if value > 0 else '-INFINITY'
        return f'{np.float32(value)!s}f'
    whole = int(value)
    if whole == -(2**63):
        return '(-9223372036854775807LL - 1)'
    suffix = '' if -(2**31) < whole < 2**31 else 'LL' if whole < 2**63 else 'ULL'
    return f'{whole}{suffix}'


def c_list(values: Iterable[Any]) -> str:
    """Return numbers as an initialiser of C, with line breaks."""
    numbers = [c_number(value) for value in values]
    lines = [numbers[i : i + _NUMBERS_IN_A_LINE] for i in range(0, len(numbers), _NUMBERS_IN_A_LINE)]
    return '{' + ',\n    '.join(', '.join(line) for line in lines) + '}'


def c_array(name: str, values: np.ndarray, comment: str = '') -> str:
    """Return the definition of a constant float32 array."""
    above = f'/* {comment} */\n' if comment else ''
    return f'{above}static const float {name}[{values.size}] = {c_list(np.float32(values).ravel())};'


class NetworkCode:
    """The C code of the first output of a network.

    Attributes:
        constants: definitions of the weights.
        statements: statements that compute the tensors, sources first; `scratch` is an array of `scratch_floats`
            numbers, `x` is the input at its beginning, and `memory->state` are the states of recurrent layers.
        input_units: the number of elements of the input.
        output: a C expression, the pointer to the output.
        output_units: the number of outputs.
        scratch_floats: the length of the scratch array.
        memory_units: the length of the memory.

    Args:
        plan: the plan.
        weights: float32 [plan.n_parameters].
        input_units: the number of elements of the encoded vector or image that the network receives.
        images: functions from a C pointer to the statements that write an image of the observation there, by the first
            byte of the image.

    Raises:
        ValueError: in one line, for a layer that is not supported.
    """

    def __init__(
        self,
        plan: NetworkPlan,
        weights: np.ndarray,
        input_units: int,
        images: dict[int, Callable[[str], list[str]]] | None = None,
    ):
        plan, kept = NetworkPlan(plan.input_shape, plan.calls, plan.outputs[:1], plan.n_parameters).pruned()
        self._weights = np.concatenate([weights[part] for part in kept]) if kept else weights[:0]
        if not np.isfinite(self._weights).all():
            raise ValueError('a weight of the network is not finite')
        self._plan, self._shapes, self._images = plan, plan.shapes(), images or {}
        self.memory_units, self.input_units = plan.memory_units, input_units
        self.constants, self.statements = list[str](), list[str]()
        self._names: dict[tuple[int, str], str] = {}
        # storage and first element of each tensor; a storage is known by the number of its first tensor
        self._views: dict[int, tuple[int, int]] = {0: (0, 0)}
        for call in plan.calls:
            storage, first = self._views[call.source] if call.kind in _VIEWS else (call.target, 0)
            self._views[call.target] = storage, first + (call.start if call.kind == 'part' else 0)
        self._last_use = {storage: -1 for storage, _ in self._views.values()}
        for i, call in enumerate(plan.calls):
            for tensor in (call.source, call.second):
                if tensor is not None:
                    self._last_use[self._views[tensor][0]] = i
        (output,) = plan.outputs
        self._last_use[self._views[output][0]] = len(plan.calls)
        # offset, size, first and last call of each storage
        self._used: list[tuple[int, int, int, int]] = []
        self._offsets = {0: self._place(input_units, -1, self._last_use[0])}
        for i, call in enumerate(plan.calls):
            self._append(i, call)
        self.output, self.output_units = self._pointer(output), self._shapes[output][0]
        self.scratch_floats = max(offset + size for offset, size, _, _ in self._used)

    def _place(self, size: int, first: int, last: int) -> int:
        """Return the offset of an array that is in use from one call to another, and of no other array."""
        offset = 0
        for start, length, begin, end in sorted(self._used):
            if begin <= last and first <= end:
                if offset + size <= start:
                    break
                offset = max(offset, start + length)
        self._used.append((offset, size, first, last))
        return offset

    def _pointer(self, tensor: int) -> str:
        storage, first = self._views[tensor]
        return f'scratch + {self._offsets[storage] + first}'

    def _constant(self, at: int, kind: str, values: np.ndarray, comment: str) -> str:
        """Return the name of a constant array of the weights at an index, and define it once."""
        key = at, kind
        if key not in self._names:
            self._names[key] = f'policy_w{len(self._names)}'
            self.constants.append(c_array(self._names[key], values, comment))
        return self._names[key]

    def _append(self, i: int, call: LayerCall) -> None:
        """Append the statements of a layer call."""
        if call.kind in _VIEWS:
            return
        shape = self._shapes[call.target]
        size = math.prod(shape)
        self._offsets[call.target] = self._place(size, i, max(i, self._last_use[call.target]))
        x, y = self._pointer(call.source), self._pointer(call.target)
        second = '0' if call.second is None else self._pointer(call.second)
        if call.kind in BYTE_KINDS:
            self.statements += self._images[call.start](y)
        elif call.kind in ('dense', 'noisy-dense', 'convolution'):
            self._append_product(i, call, x, y)
        elif call.kind in GATES:
            self._append_recurrent(i, call, x, y)
        elif call.kind in NORM_WEIGHTS:
            self._append_norm(call, x, y, size)
        elif call.kind in ('activation', 'log-probabilities'):
            self.statements.append(f'policy_copy({x}, {y}, {size});')
        elif call.kind == 'add':
            self.statements.append(f'policy_add({x}, {second}, {y}, {size});')
        elif call.kind == 'mask-illegal':
            self.statements.append(f'policy_mask_illegal({x}, {second}, {y}, {size});')
        elif call.kind == 'concatenate':
            n = self._shapes[call.source][0]
            self.statements.append(f'policy_copy({x}, {y}, {n});')
            self.statements.append(f'policy_copy({second}, {y} + {n}, {size - n});')
        elif call.kind == 'action-values':
            self._append_action_values(i, call, x, second, y)
        else:
            raise ValueError(f'a layer of the kind {call.kind} has no C code')
        if call.kind == 'log-probabilities':
            self.statements.append(f'policy_log({y}, {size});')
        if call.activation == 'softmax':
            self.statements.append(f'policy_softmax({y}, {size // shape[-1]}, {shape[-1]});')
        elif call.activation != 'linear':
            self.statements.append(f'policy_{call.activation}({y}, {size});')

    def _slice(self, call: LayerCall, n: int) -> np.ndarray:
        return self._weights[call.at : call.at + n]

    def _append_product(self, i: int, call: LayerCall, x: str, y: str) -> None:
        size, units = math.prod(call.kernel), call.kernel[-1]
        shape = ''.join(f'[{n}]' for n in call.kernel)
        comment = f'{call.kind}: kernel {shape}' + (f', bias [{units}]' if call.bias else '')
        kernel, bias = np.split(self._slice(call, size + call.bias * units), [size])
        w = self._constant(call.at, call.kind, np.concatenate([_packed(kernel, units), bias]), comment)
        first = f'{w} + {size}' if call.bias else '0'
        if call.kind != 'convolution':
            self.statements.append(f'policy_dense({w}, {first}, {x}, {y}, {call.kernel[0]}, {units});')
            return
        patch = self._place(size // units, i, i)
        numbers = ', '.join(map(str, (*self._shapes[call.source], *call.kernel[:2], units, *call.strides)))
        self.statements.append(f'policy_convolution({w}, {first}, {x}, {y}, scratch + {patch}, {numbers});')

    def _append_recurrent(self, i: int, call: LayerCall, x: str, y: str) -> None:
        inputs, units = call.kernel
        comment = f'{call.kind}: {GATES[call.kind]} gates, {inputs} inputs, {units} units'
        width = GATES[call.kind] * units
        ends = np.cumsum([inputs * width, width, units * width])
        kernel, bias, recurrent, rest = np.split(self._slice(call, call.n_parameters), ends)
        weights = np.concatenate([_packed(kernel, width), bias, _packed(recurrent, width), rest])
        w = self._constant(call.at, call.kind, weights, comment)
        gates = self._place(2 * width, i, i)
        state = f'memory->state + {call.memory_at}'
        self.statements.append(f'policy_{call.kind}({w}, {x}, {state}, {y}, scratch + {gates}, {inputs}, {units});')

    def _append_norm(self, call: LayerCall, x: str, y: str, size: int) -> None:
        (units,) = call.kernel
        vectors = self._slice(call, call.n_parameters).reshape(-1, units)
        rows = f'{x}, {y}, {size // units}, {units}'
        if call.kind == 'layer-norm':
            w = self._constant(call.at, call.kind, vectors, f'layer-norm: scale [{units}], offset [{units}]')
            self.statements.append(f'policy_layer_norm({w}, {rows}, {c_number(np.float32(call.epsilon))});')
            return
        scale, offset, mean, variance = vectors
        factor = scale / np.sqrt(variance + np.float32(call.epsilon))
        comment = f'batch-norm: mean [{units}], factor [{units}], offset [{units}]'
        w = self._constant(call.at, call.kind, np.stack([mean, factor, offset]), comment)
        self.statements.append(f'policy_batch_norm({w}, {rows});')

    def _append_action_values(self, i: int, call: LayerCall, x: str, value: str, y: str) -> None:
        n_actions, n_atoms = call.kernel
        support = '0'
        if call.support:
            returns = np.linspace(call.support[0], call.support[1], n_atoms).astype(np.float32)
            support = self._constant(call.target, 'support', returns, f'returns of {n_atoms} atoms')
        offset = self._place(n_atoms, i, i)
        rest = f'{support}, {y}, scratch + {offset}, {n_actions}, {n_atoms}'
        self.statements.append(f'policy_action_values({x}, {value}, {rest});')


def _packed(kernel: np.ndarray, units: int) -> np.ndarray:
    """Return a kernel [inputs * units] in the order in which `policy_dense` reads it."""
    rows = kernel.reshape(-1, units)
    whole = units // 4 * 4
    blocks = rows[:, :whole].reshape(len(rows), -1, 4).swapaxes(0, 1)
    return np.concatenate([blocks.ravel(), rows[:, whole:].T.ravel()])
