"""Levels and conditions of curricula, read from text."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xagents.options.curriculum import Condition, Curriculum, parse_condition, parse_levels
from xagents.options.errors import OptionError
from xagents.options.runs import RunOptions

WHOLE = st.integers(-500, 500)
NUMBER = st.floats(-1e6, 1e6).map(lambda x: round(x, 4))


@given(WHOLE, WHOLE)
def test_whole_numbers_are_levels_from_the_first_to_the_last(a, b):
    if a == b:
        with pytest.raises(OptionError, match='at least two'):
            parse_levels('x', f'{a}..{b}')
        return
    step = 1 if b > a else -1
    assert parse_levels('x', f'{a}..{b}') == tuple(range(a, b + step, step))


@given(NUMBER, NUMBER, st.integers(2, 50))
def test_n_levels_have_equal_distances(a, b, n):
    if a == b:
        return
    levels = parse_levels('x', f'{a:.4f}..{b:.4f}:{n}')
    assert len(levels) == n and levels[0] == a and levels[-1] == b
    assert all(math.isclose(y - x, (b - a) / (n - 1), abs_tol=1e-6) for x, y in itertools.pairwise(levels))


@given(st.text('0123456789.:-+eE, []', max_size=12))
def test_any_other_text_is_one_line(text):
    try:
        levels = parse_levels('x', text)
    except OptionError as error:
        assert error.name == 'curriculum' and '\n' not in str(error)
    else:
        assert len(levels) >= 2 and all(math.isfinite(x) for x in levels)


@given(st.sampled_from(['mean_reward', 'info/a.b/episode', 'loss/value']), st.sampled_from('<>'), NUMBER)
def test_conditions(metric, sign, bound):
    condition = parse_condition(f' {metric} {sign} {bound:.4f}')
    assert condition == Condition(metric, sign == '>', bound)
    assert condition.holds(bound + 1) == (sign == '>') and condition.holds(bound - 1) == (sign == '<')
    assert not condition.holds(bound) and not condition.holds(math.nan)


def test_forms():
    assert parse_levels('x', '0..10:3') == (0, 5, 10) and type(parse_levels('x', '0..10:3')[1]) is int
    assert parse_levels('x', '0..1:3') == (0.0, 0.5, 1.0)
    assert len(parse_levels('x', '0.5..1.5')) == 10 and parse_levels('x', '1e-3..1e3:2') == (0.001, 1000.0)
    assert parse_levels('x', [1, 2, 5]) == (1, 2, 5)
    plan = Curriculum.parse({'a': '0..2', 'b': '1.0..0.0:3'}, None)
    assert plan.n_levels == 3 and plan.params(1) == {'a': 1, 'b': 0.5} and plan.params(9) == {'a': 2, 'b': 0.0}


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ({'curriculum': {'level': '0-5'}}, 'level: got 0-5, expected A..B, A..B:N, or a list of numbers such as'),
        ({'curriculum': {'level': 5}}, 'level: got 5, expected A..B'),
        ({'curriculum': {'level': '0..5:1'}}, 'level: got 0..5:1, expected at least two and at most 10000 different'),
        ({'curriculum': {'level': '0..99999'}}, 'at most 10000'),
        ({'curriculum': {'level': '0..inf'}}, 'expected A..B'),
        ({'curriculum': {'level': [1, 'a']}}, 'expected at least two finite numbers'),
        ({'curriculum': {'level': [1, float('nan')]}}, 'expected at least two finite numbers'),
        ({'curriculum': {'a b': '0..5'}}, 'got a b, expected the name of a parameter'),
        ({'curriculum': {'a': '0..5', 'b': '0..2'}}, 'unequal numbers of levels, 6 of a, 3 of b; expected equal'),
        ({'curriculum_when': 'x>1'}, 'curriculum_when: got x>1, which requires --curriculum'),
        ({'curriculum': {'a': '0..5'}, 'curriculum_when': 'x=1'}, 'got x=1, expected METRIC>X or METRIC<X in quotes'),
        ({'curriculum': {'a': '0..5'}, 'curriculum_when': 'x>=1'}, 'got x>=1, expected METRIC>X'),
        ({'curriculum': {'a': '0..5'}, 'curriculum_when': '__import__("os")>1 or 1'}, 'expected METRIC>X'),
        ({'curriculum': {'a': '0..5'}, 'curriculum_when': 'evaluate/mean>1'}, 'which requires --eval-frequency'),
        (
            {'curriculum': {'a': '0..5'}, 'curriculum_when': 'evaluate/meen>1', 'eval_frequency': 10},
            r'did you mean evaluate/mean\?',
        ),
        (
            {'curriculum': {'a': '0..5'}, 'curriculum_when': 'info/cots/episode<1', 'log_info': ['cost']},
            r'got info/cots/episode, which requires --log-info cots \(did you mean info/cost/episode\?\)',
        ),
        ({'curriculum': {'a': '0..5'}, 'dataset': 'x-v0'}, 'with --dataset, which replaces collecting'),
        ({'curriculum': {'a': '0..5'}, 'eval_frequency': 5, 'eval_async': True}, 'cannot be used with --eval-async'),
    ],
)
def test_wrong_input_is_one_line(given, message):
    with pytest.raises(OptionError, match=message.replace('(', r'\(') if '\\' not in message else message) as caught:
        RunOptions.resolve(given)
    assert '\n' not in str(caught.value)
