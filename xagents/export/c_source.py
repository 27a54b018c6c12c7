"""A greedy policy as one C99 header, from raw observations to environment actions, without allocation or libraries.

The header contains two structs, `policy_observation` and `policy_action`, with a field for each input and output of the
policy. A policy with memory also has `policy_memory`. `policy_act` computes an action. The functions of layers are
copied from `c_functions.h`; `NetworkCode` makes the statements that call them.
"""

from __future__ import annotations

import importlib.resources
import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import spaces

from xagents.envs.normalisation import EPSILON
from xagents.export.bounds import box_scaling
from xagents.export.c_network import NetworkCode, c_array, c_list, c_number
from xagents.export.numpy_template import NumpyPolicy, first_element, flatten, nest
from xagents.networks.plan import NetworkPlan
from xagents.version import __version__

if TYPE_CHECKING:
    from xagents.export.policy import ExportedPolicy, Output

HEADER = 'policy.h'
TEST_COMMAND = f'cc -std=c99 -DXAGENTS_TEST -x c {HEADER} -lm -o policy-test && ./policy-test'
# the test vectors have at most this many numbers, but at least two observations
_MAX_TEST_NUMBERS, _MAX_TESTS = 20_000, 32
# keywords of C and C++, and names of macros
_KEYWORDS = frozenset(
    re.findall(
        r'\w+',
        """
        alignas alignof and asm auto bool break case catch char class const constexpr continue decltype default
        delete do double else enum explicit export extern false float for friend goto if INFINITY inline int
        linux long mutable namespace NAN new noexcept not nullptr operator or private protected public register
        restrict return short signed sizeof static static_assert struct switch template this throw true try
        typedef typeid typename union unix unsigned using virtual void volatile while xor
        """,
    )
)


class Field(NamedTuple):
    """A field of a struct: an array of one input or output of the policy, or a single number.

    Attributes:
        key: the name of the input or output.
        name: the name of the field.
        c_type: the type of an element.
        shape: the shape of the array in the environment; empty for a single number.
        comment: the array in the environment.
    """

    key: str
    name: str
    c_type: str
    shape: tuple[int, ...]
    comment: str

    @property
    def dtype(self) -> np.dtype:
        """The dtype of an element."""
        return np.dtype(np.float32 if self.c_type == 'float' else self.c_type.removesuffix('_t'))

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def declaration(self) -> str:
        """Return the declaration of the field."""
        return f'    {self.c_type} {self.name}{f"[{self.size}]" if self.shape else ""}; /* {self.comment} */'

    def at(self, struct: str, index: str) -> str:
        """Return the expression of an element, from the expressions of a pointer to the struct and of an index."""
        return f'{struct}->{self.name}[{index}]' if self.shape else f'{struct}->{self.name}'

    def initialiser(self, value: np.ndarray) -> str:
        """Return the initialiser of the field."""
        numbers = value.astype(self.dtype).ravel()
        return c_list(numbers) if self.shape else c_number(numbers[0])


def observation_fields(policy: ExportedPolicy) -> list[Field]:
    """Return the fields of `policy_observation`: numbers of any floating type are `float`."""
    return _fields(policy.inputs)


def action_fields(policy: ExportedPolicy) -> list[Field]:
    """Return the fields of `policy_action`."""
    return _fields(policy.outputs)


def _fields(parts: Iterable[Any]) -> list[Field]:
    """Return the fields of inputs or outputs; a name that C does not admit, or that is taken, ends with `_`."""
    parts = list(parts)
    names, fields = {part.name for part in parts}, list[Field]()
    for part in parts:
        name = part.name
        while name in _KEYWORDS or (name != part.name and name in names):
            name += '_'
        names.add(name)
        fields.append(_field(part.name, name, part.path, part.space))
    return fields


def _field(key: str, name: str, path: tuple[Any, ...], space: Any) -> Field:
    kind, shape = type(space).__name__, tuple(space.shape or ())
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        last = int(np.max(space.start + (space.n if isinstance(space, spaces.Discrete) else space.nvec)))
        small = int(np.min(space.start)) > -(2**31) and last < 2**31
        c_type = 'int32_t' if small else 'int64_t'
    elif space.dtype.kind == 'f':
        c_type = 'float'
    else:
        c_type = 'uint8_t' if space.dtype == bool else f'{space.dtype.name}_t'
    place = f', at {json.dumps(list(path))}' if len(path) > 1 or (path and path[0] != key) else ''
    comment = f'{kind}, shape {json.dumps(list(shape))}, {space.dtype.name}{place}'
    return Field(key, name, c_type, shape, _in_comment(comment))


def struct_dtype(fields: Iterable[Field]) -> np.dtype:
    """Return the dtype of a struct with the C compiler's alignment of fields."""
    return np.dtype([(field.name, field.dtype, (field.size,) if field.shape else ()) for field in fields], align=True)


def c_header(policy: ExportedPolicy) -> str:
    """Return the header of a policy.

    Raises:
        ValueError: in one line, if the network has no plan, or a layer that is not supported.
    """
    plan, arrays = policy.as_data()
    taken, returned = observation_fields(policy), action_fields(policy)
    leaves = [space for _, space, _ in plan['leaves']]
    has_parts = plan['observation_space']['space'] != 'Box'
    sizes = [len(flatten(leaf, first_element(leaf))[0]) for leaf in leaves] if has_parts else []
    images = _image_writers(plan, taken)
    network_plan = NetworkPlan.from_dict(plan['network'])
    units = sum(sizes) if has_parts else math.prod(network_plan.input_shape)
    network = NetworkCode(network_plan, arrays['weights'], units, images)
    normalisation, constants = _normalisation(plan, arrays, units)
    encoding = [*(_encode_parts(plan, taken, sizes) if has_parts else _encode_box(plan, taken[0])), *normalisation]
    tables, decoding = list[str](), list[str]()
    for i, (output, field) in enumerate(zip(policy.outputs, returned, strict=True)):
        first = output.units.start or 0
        table, statements = _decode(f'policy_bounds{i}', output.space, field, first)
        tables, decoding = tables + table, decoding + statements
    memory = 'policy_memory *memory, ' if network.memory_units else ''
    body = [
        *constants,
        *network.constants,
        *tables,
        f'/* Compute the {network.output_units} outputs of the network for an observation. */',
        f'static void policy_outputs(const policy_observation *observation, {memory}float *outputs)',
        '{',
        '    POLICY_SCRATCH float scratch[POLICY_SCRATCH_FLOATS];',
        *(f'    {line}' for line in (*encoding, *network.statements)),
        f'    policy_copy({network.output}, outputs, {network.output_units});',
        '}',
        '',
        '/* Convert the outputs of the network to an action. */',
        'static void policy_decode(const float *outputs, policy_action *action)',
        '{',
        *(f'    {line}' for line in decoding),
        '}',
    ]
    public = _public_functions(network)
    tests = _tests(policy, plan, arrays, network, taken, returned)
    functions = c_functions('\n'.join(body))
    test_functions = [text for text in c_functions('\n'.join(tests)) if text not in functions]
    parts = [
        _opening(policy, network),
        '#ifndef XAGENTS_POLICY_H\n#define XAGENTS_POLICY_H\n',
        '#include <math.h>\n#include <stdint.h>\n',
        '/* Storage of intermediate results: the stack, or with -DPOLICY_SCRATCH=static a static array. */',
        '#ifndef POLICY_SCRATCH\n#define POLICY_SCRATCH\n#endif',
        f'#define POLICY_SCRATCH_FLOATS {network.scratch_floats}\n',
        _struct('policy_observation', 'An observation, as the environment returns it; arrays are row-major.', taken),
        _struct('policy_action', 'An action of the environment; arrays are row-major.', returned),
        *([_memory_struct(network.memory_units)] if network.memory_units else []),
        *functions,
        '\n'.join(body) + '\n',
        public,
        '#ifdef XAGENTS_TEST\n#include <stdio.h>\n',
        *test_functions,
        '\n'.join(tests),
        '#endif /* XAGENTS_TEST */\n\n#endif /* XAGENTS_POLICY_H */\n',
    ]
    return '\n'.join(parts)


def _in_comment(text: str) -> str:
    """Return a text without characters that have a meaning in comments of C."""
    return re.sub(r'[^ -~]|[*\\?]', '_', text)


def _opening(policy: ExportedPolicy, network: NetworkCode) -> str:
    """Return the comment at the beginning of the header."""
    agent = policy.agent
    stack = 4 * (network.scratch_floats + network.output_units)
    memory = (
        """
    policy_memory memory;
    policy_reset(&memory);                            at the first step of each episode"""
        if network.memory_units
        else ''
    )
    arguments = '&observation, &memory, &action' if network.memory_units else '&observation, &action'
    return f"""\
/*
The greedy policy of {_in_comment(agent.id)} for {_in_comment(agent.envs.id)} after {agent.context.steps} steps.
Written by xagents {__version__}. C99, without allocation; needs only <math.h> and <stdint.h> (link with -lm).

    #include "{HEADER}"

    policy_observation observation;                   fill it with the observation, not normalised
    policy_action action;{memory}
    policy_act({arguments});

All functions are static: a program with several policies includes each header in a source file of its own.
A call uses {stack} bytes of the stack for arrays, or {4 * network.output_units} with -DPOLICY_SCRATCH=static.

Compare the policy with test vectors on a PC (gcc and clang); the exit code is 0 if all agree:

    {TEST_COMMAND}

On a device, define XAGENTS_TEST and XAGENTS_NO_MAIN, and call xagents_test(), which returns the number of errors.
*/"""


def _struct(name: str, comment: str, fields: Iterable[Field]) -> str:
    lines = '\n'.join(field.declaration() for field in fields)
    return f'/* {comment} */\ntypedef struct {{\n{lines}\n}} {name};\n'


def _memory_struct(units: int) -> str:
    comment = 'The memory of an episode: zeros at its first step. policy_act reads and replaces it.'
    return f'/* {comment} */\ntypedef struct {{\n    float state[{units}];\n}} policy_memory;\n'


def _public_functions(network: NetworkCode) -> str:
    memory = network.memory_units
    reset = """
/* Begin an episode: set the memory to zeros. */
static inline void policy_reset(policy_memory *memory)
{
    for (int32_t i = 0; i < %d; i++)
        memory->state[i] = 0.0f;
}
"""
    return (
        (reset % memory if memory else '')
        + f"""
/* Compute the greedy action for an observation{' and the memory, and replace the memory' if memory else ''}. */
static inline void policy_act(const policy_observation *observation, {'policy_memory *memory, ' if memory else ''}\
policy_action *action)
{{
    float outputs[{network.output_units}];
    policy_outputs(observation, {'memory, ' if memory else ''}outputs);
    policy_decode(outputs, action);
}}
"""
    )


def c_functions(code: str) -> list[str]:
    """Return the functions that some code needs, in an order in which each is defined before it is called."""
    text = importlib.resources.files('xagents.export').joinpath('c_functions.h').read_text()
    functions = {}
    for part in text.split('\n\n')[1:]:
        (name,) = re.findall(r'^static \w+ (policy_\w+)\(', part, re.MULTILINE)
        functions[name] = part.strip() + '\n'
    needed = set[str]()
    pending = [code]
    while pending:
        names = {name for name in re.findall(r'policy_\w+(?=\()', pending.pop()) if name in functions} - needed
        needed |= names
        pending += [functions[name] for name in names]
    return [function for name, function in functions.items() if name in needed]


# ------------------------------------------------------------------------------------------------------- observations


def _encode_box(plan: dict[str, Any], field: Field) -> Iterator[str]:
    """Yield statements that write a vector or an image to `x`, with channels last."""
    axes = None if plan['axes'] is None else [axis - 1 for axis in plan['axes'][1:]]
    yield 'float *x = scratch;'
    is_scaled = plan['observation_space']['dtype'] == 'uint8' and not plan['normalizes']
    yield from _loops(field, axes, 'x', ' / 255.0f' if is_scaled else '')


def _encode_parts(plan: dict[str, Any], fields: list[Field], sizes: list[int]) -> Iterator[str]:
    """Yield statements that write the parts of the vector to `x`; 0 for parts that only critics received."""
    names = {tuple(path): name for name, path in plan['inputs']}
    by_key = {field.key: field for field in fields}
    at = 0
    if sum(sizes):
        yield 'float *x = scratch;'
    for (path, space, hidden), size in zip(plan['leaves'], sizes, strict=True):
        if hidden:
            yield _loop(size, f'x[{at} + i] = 0.0f;')
        elif space['space'] in ('Discrete', 'MultiDiscrete'):
            field = by_key[names[tuple(path)]]
            counts = np.ravel(space['n'] if space['space'] == 'Discrete' else space['nvec'])
            first = at
            for i, (count, start) in enumerate(zip(counts, np.ravel(space['start']), strict=True)):
                value = field.at('observation', str(i))
                yield f'policy_one_hot((int64_t){value}{_minus(start)}, x + {first}, {count});'
                first += int(count)
        else:
            field = by_key[names[tuple(path)]]
            factor = f' * {c_number(np.float32(1 / 255))}' if space.get('dtype') == 'uint8' else ''
            yield _loop(size, f'x[{at} + i] = (float){field.at("observation", "i")}{factor};')
        at += size


def _minus(start: Any) -> str:
    return f' - {_in_parentheses(start)}' if start else ''


def _in_parentheses(value: Any) -> str:
    return f'({c_number(value)})' if value < 0 else c_number(value)


def _loop(n: int, statement: str) -> str:
    return f'for (int32_t i = 0; i < {n}; i++) {statement}'


def _loops(field: Field, axes: list[int] | None, target: str, scale: str) -> Iterator[str]:
    """Yield loops that write the numbers of a field to a target, in an order of axes."""
    axes = list(range(len(field.shape))) if axes is None else axes
    if axes == sorted(axes):
        yield _loop(field.size, f'({target})[i] = (float){field.at("observation", "i")}{scale};')
        return
    strides = [math.prod(field.shape[axis + 1 :]) for axis in range(len(field.shape))]
    yield '{'
    yield '    int32_t n = 0;'
    for depth, axis in enumerate(axes):
        yield f'{"    " * (depth + 1)}for (int32_t i{axis} = 0; i{axis} < {field.shape[axis]}; i{axis}++)'
    index = ' + '.join(f'i{axis} * {stride}' for axis, stride in enumerate(strides))
    value = field.at('observation', index)
    yield f'{"    " * (len(axes) + 1)}({target})[n++] = (float){value}{scale};'
    yield '}'


def _image_writers(plan: dict[str, Any], fields: list[Field]) -> dict[int, Any]:
    """Return functions from a C pointer to the statements that write an image there, by the first byte of the image."""
    names = {tuple(path): name for name, path in plan['inputs']}
    by_key = {field.key: field for field in fields}
    writers = {}
    for path, start, _, order in plan['images']:
        field = by_key[names[tuple(path)]]
        scale = ' / 255.0f' if field.c_type == 'uint8_t' else ''

        def write(pointer: str, field: Field = field, order: Any = order, scale: str = scale) -> list[str]:
            return list(_loops(field, order, pointer, scale))

        writers[start] = write
    return writers


def _normalisation(plan: dict[str, Any], arrays: dict[str, np.ndarray], units: int) -> tuple[list[str], list[str]]:
    """Return the statement that normalises `x`, and its constants; none if the agent does not normalise."""
    if not plan['normalizes'] or not arrays['observation_statistics/count'] or not units:
        return [], []
    mean, variance = (arrays[f'observation_statistics/{name}'].ravel() for name in ('mean', 'var'))
    constants = [
        c_array('policy_mean', mean, 'mean of observations in training'),
        c_array('policy_factor', 1 / np.sqrt(variance + EPSILON), '1 / standard deviation of observations in training'),
    ]
    return [f'policy_normalize(x, policy_mean, policy_factor, {units});'], constants


# ------------------------------------------------------------------------------------------------------------ actions


def _decode(table: str, space: Any, field: Field, first: int) -> tuple[list[str], list[str]]:
    """Return constants, and statements that convert the outputs from index `first` to a field of the action."""
    if isinstance(space, spaces.MultiBinary):
        return [], [_loop(field.size, f'{field.at("action", "i")} = outputs[{first} + i] > 0.0f;')]
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        counts = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        statements = []
        for i, (count, start) in enumerate(zip(counts, np.ravel(space.start), strict=True)):
            begin = f' + {_in_parentheses(start)}' if start else ''
            choice = f'policy_argmax(outputs + {first}, {count})'
            statements.append(f'{field.at("action", str(i))} = {choice}{begin};')
            first += int(count)
        return [], statements
    value = f'policy_scale(outputs[{first} + i], {table}[i])'
    if field.c_type != 'float':
        value = f'({field.c_type})policy_clip(rintf({value}), {table}[i][3], {table}[i][4])'
    else:
        value = f'policy_clip({value}, {table}[i][3], {table}[i][4])'
    rows = ',\n    '.join(c_list(row) for row in np.stack(box_scaling(space), 1))
    comment = 'limit of the output, half range, middle, low, high of each element of the action'
    definition = f'/* {comment} */\nstatic const float {table}[{field.size}][5] = {{{rows}}};'
    return [definition], [_loop(field.size, f'{field.at("action", "i")} = {value};')]


# -------------------------------------------------------------------------------------------------------------- tests


def _tests(
    policy: ExportedPolicy,
    plan: dict[str, Any],
    arrays: dict[str, np.ndarray],
    network: NetworkCode,
    taken: list[Field],
    returned: list[Field],
) -> list[str]:
    """Return the test vectors and the functions that compare the policy with them."""
    observed, starts = policy.arrays, policy.starts
    numbers = sum(field.size for field in taken)
    n = min(len(starts), _MAX_TESTS, max(2, _MAX_TEST_NUMBERS // numbers))
    if network.memory_units:  # the steps of one episode
        n = min(n, 1 + int(np.append(starts[1:], True).argmax()))
    computed = NumpyPolicy.from_data(json.loads(json.dumps(plan)), arrays)
    outputs, actions, memory = [], [], None
    for t in range(n):
        batch = {name: array[t : t + 1] for name, array in observed.items()}
        row, memory = computed.network_outputs(nest(batch, plan['inputs']), memory)
        outputs.append(row[0])
        actions.append({name: action[0] for name, action in computed.actions(row).items()})
    observations = [
        '{' + ', '.join(field.initialiser(observed[field.key][t]) for field in taken) + '}' for t in range(n)
    ]
    expected = ['{' + ', '.join(field.initialiser(one[field.key]) for field in returned) + '}' for one in actions]
    units = network.output_units
    checks = [
        line
        for i, (output, field) in enumerate(zip(policy.outputs, returned, strict=True))
        for line in _check(f'policy_bounds{i}', output, field)
    ]
    memory_code = network.memory_units > 0
    steps = 'steps of an episode' if memory_code else 'observations'
    return [
        f'/* {n} {steps} of the environment, with the actions and the outputs of the network in NumPy. */',
        f'static const policy_observation policy_test_observations[{n}] = {{',
        '    ' + ',\n    '.join(observations),
        '};',
        f'static const policy_action policy_test_actions[{n}] = {{',
        '    ' + ',\n    '.join(expected),
        '};',
        f'static const float policy_test_outputs[{n}][{units}] = {{',
        '    ' + ',\n    '.join(c_list(row) for row in np.asarray(outputs, np.float32)),
        '};',
        '',
        '/*',
        'Return the number of observations for which the outputs of the network differ by more than 1e-5 of the larger',
        'of 1 and the largest output, or an action differs by more than 1e-5 of half its range and its',
        'value. Of two discrete actions whose outputs are equal within this tolerance, both are right.',
        '*/',
        'static inline int xagents_test(void)',
        '{',
        '    int errors = 0;',
        *(['    policy_memory memory;', '    policy_reset(&memory);'] if memory_code else []),
        f'    for (int32_t t = 0; t < {n}; t++) {{',
        '        const policy_observation *observation = &policy_test_observations[t];',
        '        const policy_action *expected = &policy_test_actions[t];',
        '        const float *wanted = policy_test_outputs[t];',
        f'        const float unit = policy_unit(wanted, {units});',
        f'        float outputs[{units}];',
        '        policy_action found, *action = &found;',
        '        int right = 1;',
        *(['        policy_memory copy = memory;'] if memory_code else []),
        f'        policy_outputs(observation, {"&copy, " if memory_code else ""}outputs);',
        f'        policy_act(observation, {"&memory, " if memory_code else ""}action);',
        f'        for (int32_t i = 0; i < {units}; i++)',
        '            right = right && policy_is_near(outputs[i], wanted[i], unit);',
        *(f'        {line}' for line in checks),
        '        errors += !right;',
        '    }',
        '    return errors;',
        '}',
        '',
        '#ifndef XAGENTS_NO_MAIN',
        'int main(void)',
        '{',
        '    const int errors = xagents_test();',
        f'    printf("%d of {n} test vectors agree\\n", {n} - errors);',
        '    return errors ? 1 : 0;',
        '}',
        '#endif /* XAGENTS_NO_MAIN */',
    ]


def _check(table: str, output: Output, field: Field) -> Iterator[str]:
    """Yield statements that set `right` to 0 if a field of the action is wrong."""
    space: Any = output.space
    first = output.units.start or 0
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        counts = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        for i, (count, start) in enumerate(zip(counts, np.ravel(space.start), strict=True)):
            got, wanted = (f'{field.at(struct, str(i))}{_minus(start)}' for struct in ('action', 'expected'))
            yield f'right = right && {got} >= 0 && {got} < {count};'
            yield f'right = right && policy_is_near(wanted[{first} + {got}], wanted[{first} + {wanted}], unit);'
            first += int(count)
        return
    got, wanted = field.at('action', 'i'), field.at('expected', 'i')
    if isinstance(space, spaces.MultiBinary):
        near = f'policy_is_near(wanted[{first} + i], 0.0f, unit)'
    elif field.c_type == 'float':
        # half the range of an element without bounds is 1
        near = f'policy_is_near({got}, {wanted}, {table}[i][1] + fabsf({wanted}))'
    else:
        halfway = f'((float){got} + (float){wanted}) * 0.5f'
        near = f'policy_is_near(policy_scale(wanted[{first} + i], {table}[i]), {halfway}, {table}[i][1] * unit)'
    yield _loop(field.size, f'right = right && ({got} == {wanted} || {near});')
