"""One declaration for an option: what is checked, parsed, described and resolved from it."""

# ruff: noqa: RUF009 -- option() makes a dataclass field

import dataclasses
import json
import math
import os
import string
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xagents.options.agents import AgentOptions
from xagents.options.commands import EvaluateOptions, PlayOptions, PlotOptions, TuneOptions
from xagents.options.declaration import Option, Options, changed, declared_options, option, signature
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.errors import OptionError, did_you_mean, format_value
from xagents.options.runs import RunOptions, SessionOptions, TrainOptions
from xagents.registry.agents import agents

GROUPS = [
    *(EnvironmentOptions, NetworkOptions, AgentOptions, RunOptions, SessionOptions, TrainOptions, TuneOptions),
    *(PlayOptions, EvaluateOptions, PlotOptions),
    *(entry.options for entry in agents.values()),
]
OPTIONS = [o for group in GROUPS for o in declared_options(group).values()]
NUMBERS = [o for o in OPTIONS if o.type in (int, float)]
JSON_WORDS = {'NaN', 'None', 'True', 'False', 'Infinity', 'null', 'true', 'false'}
texts = st.text(string.printable, max_size=30)
anything = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), texts, st.binary(max_size=5), st.complex_numbers()),
    *(st.lists(st.one_of(st.integers(), st.floats(), texts, st.none()), max_size=3), st.dictionaries(texts, texts)),
    *(st.just(10**400), st.just(object()), st.just(np.zeros(2)), st.just(np.array(3)), st.just(np.float32(0.5))),
)


def admitted(o: Option) -> st.SearchStrategy:
    """Values that an option admits, by a reading of its declaration that shares no code with `check`."""
    if o.type is dict:
        values = st.one_of(st.integers(), st.booleans(), st.floats(-10, 10), st.text(string.ascii_letters, min_size=2))
        return st.dictionaries(st.text(string.ascii_lowercase, min_size=1, max_size=5), values, min_size=1)
    if o.choices is not None:
        single: st.SearchStrategy = st.sampled_from(o.choices)
    elif o.type is bool:
        single = st.booleans()
    elif o.type is str:
        single = st.text(string.ascii_letters + string.digits + '/._:=+', min_size=1, max_size=20)
    else:
        low = o.at_least if o.at_least is not None else o.above
        high = o.at_most if o.at_most is not None else o.below
        if o.type is int:
            most = 2**63 - 1
            single = st.integers(-most if low is None else int(low), most if high is None else int(high))
        else:
            finite = {'allow_nan': False, 'allow_infinity': False}
            single = st.floats(low, high, **finite, exclude_min=o.above is not None, exclude_max=o.below is not None)
    return st.lists(single, min_size=1, max_size=4) if o.is_list else single


def typed(value: object) -> str | list[str]:
    """What one types for a value."""
    if isinstance(value, dict):
        return [f'{key}={item if isinstance(item, str) else json.dumps(item)}' for key, item in value.items()]
    return [typed(item) for item in value] if isinstance(value, list) else str(value)


@given(st.data())
def test_what_is_admitted_is_kept_checked_and_parsed(data):
    o = data.draw(st.sampled_from(OPTIONS))
    value = data.draw(admitted(o))
    assert o.check(value) == value
    assert o.check(o.check(value)) == value
    # a text that reads as JSON, such as true, becomes what it reads as
    if o.type is not dict or not JSON_WORDS.intersection(v for v in value.values() if isinstance(v, str)):
        assert o.parse(typed(value)) == value


@given(st.data())
def test_any_value_is_admitted_or_refused_by_name_on_one_line(data):
    o = data.draw(st.sampled_from(OPTIONS))
    value = data.draw(anything)
    try:
        kept = o.check(value)
    except OptionError as error:
        assert error.name == o.name
        assert o.expected in error.problem
        assert '\n' not in str(error)
    else:
        if o.type in (int, float) and kept is not None:
            assert all(type(v) is o.type and v - v == 0 for v in (kept if o.is_list else [kept]))


@given(st.data())
def test_any_text_is_parsed_or_refused_by_name_as_it_was_typed(data):
    o = data.draw(st.sampled_from(OPTIONS))
    odd = ['=', '=1', '1e400', '-inf', 'nan', '9' * 5000, '0x10', '²', '٣', '1_0', '']
    text = data.draw(st.one_of(texts, st.sampled_from(odd)))
    several = o.is_list or o.type is dict
    try:
        value = o.parse([text] if several else text)
    except OptionError as error:
        assert (error.name, error.problem.startswith('got ')) == (o.name, True)
        assert format_value(text) in error.problem
    else:
        assert o.check(value) == value


@given(st.sampled_from(NUMBERS), st.data())
def test_out_of_range_is_always_refused(o, data):
    bounds = [
        *([st.floats(max_value=o.at_least, exclude_max=True)] if o.at_least is not None else []),
        *([st.floats(max_value=o.above)] if o.above is not None else []),
        *([st.floats(min_value=o.at_most, exclude_min=True)] if o.at_most is not None else []),
        *([st.floats(min_value=o.below)] if o.below is not None else []),
    ]
    value = data.draw(st.one_of(*bounds, st.just(math.nan), st.just(math.inf)))
    for refused in (value, np.float64(value), [value] if o.is_list else value):
        with pytest.raises(OptionError, match=f'^{o.name}: got '):
            o.check(refused)


def test_what_is_no_json_is_a_text():
    deep = '[' * 100_000
    parsed = declared_options(EnvironmentOptions)['env_kwargs'].parse([f'a={deep}', 'b=', 'c=None'])
    assert parsed == {'a': deep, 'b': '', 'c': None}


@pytest.mark.parametrize(
    ('group', 'name', 'text', 'message'),
    [
        (AgentOptions, 'gamma', '2', 'gamma: got 2, expected a number at least 0 and at most 1'),
        (AgentOptions, 'lr', '-1e-3', 'lr: got -1e-3, expected a number above 0'),
        (AgentOptions, 'lr', '0', 'lr: got 0, expected a number above 0'),
        (AgentOptions, 'beta1', '1', 'beta1: got 1, expected a number at least 0 and below 1'),
        (AgentOptions, 'seed', '-1', 'seed: got -1, expected a whole number at least 0 and at most 4294967295'),
        (EnvironmentOptions, 'n_envs', '0', 'n_envs: got 0, expected a whole number at least 1 and at most 16384'),
        (
            EnvironmentOptions,
            'n_envs',
            '1e30',
            'n_envs: got 1e30, expected a whole number at least 1 and at most 16384',
        ),
        (RunOptions, 'max_steps', '1e30', 'max_steps: got 1e30, expected a whole number at least 1 of 64 bits'),
        (EnvironmentOptions, 'n_envs', '2.5', 'n_envs: got 2.5, expected a whole number at least 1 and at most 16384'),
        (
            *(EnvironmentOptions, 'vector', 'asink'),
            'vector: got asink, expected one of auto, sync, async, compiled, native, envpool (did you mean async?)',
        ),
        (EnvironmentOptions, 'env_kwargs', ['a'], 'env_kwargs: got a, expected key=value pairs'),
        (EnvironmentOptions, 'env_kwargs', ['a=1', 'b=2', 'a=3'], 'env_kwargs: got a twice, expected each name once'),
        (NetworkOptions, 'net', ['64', 'x'], 'net: got x, expected a whole number at least 1'),
        (RunOptions, 'history_checkpoint', '', "history_checkpoint: got '', expected text"),
    ],
)
def test_messages_say_what_was_typed_and_what_is_admitted(group, name, text, message):
    with pytest.raises(OptionError) as caught:
        declared_options(group)[name].parse(text)
    assert str(caught.value) == message


def test_a_text_where_a_number_belongs_is_shown_with_its_quotes_in_python():
    with pytest.raises(OptionError, match=r"^gamma: got '0\.9', expected a number"):
        AgentOptions.resolve({'gamma': '0.9'})


@pytest.mark.parametrize('value', [True, False, '3', 2.5, None, [3]])
def test_no_whole_number(value):
    with pytest.raises(OptionError):
        declared_options(EnvironmentOptions)['n_envs'].check(value)


def test_numbers_of_numpy_and_paths_become_pythons_own():
    assert type(declared_options(AgentOptions)['gamma'].check(np.float32(0.5))) is float
    assert type(declared_options(EnvironmentOptions)['n_envs'].check(np.int64(4))) is int
    assert type(declared_options(AgentOptions)['normalize_obs'].check(np.bool_(True))) is bool
    assert declared_options(NetworkOptions)['net'].check(np.array([64, 32])) == [64, 32]
    assert declared_options(NetworkOptions)['net'].check(np.array(64)) == [64]
    assert declared_options(RunOptions)['checkpoints'].check(Path('a') / 'b.tf') == [os.path.join('a', 'b.tf')]


def test_whole_numbers_keep_their_digits_and_may_be_typed_as_powers():
    assert declared_options(AgentOptions)['seed'].parse(str(2**32 - 1)) == 2**32 - 1
    assert declared_options(RunOptions)['max_steps'].parse('1e6') == 1_000_000


@pytest.mark.parametrize('group', GROUPS)
def test_every_default_is_admitted_and_every_option_documented(group):
    for o in declared_options(group).values():
        assert (o.default is None and o.optional) or o.check(o.default) == o.default
        assert o.help and not o.help.endswith('.') and '\n' not in o.help
    options = group.resolve({})
    assert (options.changed(seed=None) if hasattr(options, 'seed') else options) == group()


def test_no_two_options_of_an_agent_share_a_flag():
    for entry in agents.values():
        groups = (entry.options, EnvironmentOptions, NetworkOptions, RunOptions, TrainOptions, SessionOptions)
        flags = [flag for group in groups for o in declared_options(group).values() for flag in o.flags]
        assert len(flags) == len(set(flags))


@dataclasses.dataclass
class Parent(Options):
    rate: float = option(0.5, 'a rate', at_least=0, at_most=1, tune='log_uniform')
    steps: int = option(5, 'steps', at_least=1, aliases=('learning_starts',))
    names: list[str] = option(['a'], 'names')


@dataclasses.dataclass
class Child(Parent):
    extra: bool = option(False, 'a switch')
    rate: float = changed(Parent, 'rate', 0.25, at_most=2)


def test_a_child_has_its_parents_options_first_and_in_place():
    assert list(declared_options(Child)) == ['rate', 'steps', 'names', 'extra']
    assert declared_options(Child)['extra'].flags == ['--extra', '--no-extra']
    assert declared_options(Child)['steps'].flags == ['--steps', '--learning-starts']
    declared_options(Child).clear()  # each caller has a dict of its own
    assert declared_options(Child)
    Parent().names.append('b')  # and each instance a list
    assert Parent().names == ['a']


def test_changed_keeps_what_it_does_not_say():
    parent, child = declared_options(Parent)['rate'], declared_options(Child)['rate']
    assert child == dataclasses.replace(parent, default=0.25, at_most=2)
    assert parent.default == 0.5
    with pytest.raises(KeyError):
        changed(Parent, 'rait', 1)


def test_resolve_fills_in_defaults_and_takes_other_names():
    assert Child.resolve({'learning_starts': 7, 'extra': True}) == Child(steps=7, extra=True)
    assert Child.resolve().asdict() == {'rate': 0.25, 'steps': 5, 'names': ['a'], 'extra': False}
    with pytest.raises(OptionError, match=r'^learning_starts: is another name of steps'):
        Child.resolve({'steps': 3, 'learning_starts': 7})


@given(st.sampled_from(GROUPS), st.data())
def test_resolve_names_the_nearest_of_a_misspelt_name(group, data):
    name = data.draw(st.sampled_from(sorted(declared_options(group))))
    position = data.draw(st.integers(0, len(name) - 1))
    wrong = name[:position] + data.draw(st.sampled_from('xqz')) + name[position:]
    with pytest.raises(OptionError) as caught:
        group.resolve({wrong: 1})
    assert caught.value.name == wrong
    # a hint is always a name that exists; for names that are not tiny there is one
    hint = caught.value.problem.removeprefix('is no option here').removeprefix(' (did you mean ').removesuffix('?)')
    assert hint in declared_options(group) or (not hint and len(name) <= 2)


def test_what_messages_show():
    assert did_you_mean('zzz', ['alpha', 'beta']) == ''
    assert did_you_mean('alpa', ['alpha', 'beta']) == ' (did you mean alpha?)'
    assert format_value('a\nb') == r"'a\nb'"
    assert format_value(np.zeros((3, 3))).count('\n') == 0
    assert len(format_value('x' * 1000)) == 120


def test_signature_has_positionals_then_every_option_as_a_keyword():
    parameters = signature(['agent', 'env'], Parent, Child).parameters
    assert list(parameters) == ['agent', 'env', 'rate', 'steps', 'names', 'extra']
    assert parameters['rate'].default == 0.25
    assert parameters['rate'].kind is parameters['rate'].KEYWORD_ONLY


def test_none_takes_a_number_back_where_it_may_be_missing():
    known = declared_options(RunOptions)
    assert known['explorers'].parse('none') is None and known['max_time'].parse('none') is None
    assert known['run_dir'].parse('none') == 'none'  # a folder may be called so
    with pytest.raises(OptionError, match='got none, expected a whole number'):
        known['final_episodes'].parse('none')


def test_a_declaration_without_its_decorator_or_without_help_is_refused():
    class Undecorated(AgentOptions):
        temperature: float = option(1.0, 'a temperature')

    @dataclasses.dataclass
    class Plain(AgentOptions):
        temperature: float = 1.0

    for declaration, problem in ((Undecorated, 'without @dataclass'), (Plain, r'without option\(\)')):
        with pytest.raises(TypeError, match=f'declares temperature {problem}'):
            declared_options(declaration)
