"""The declaration of an option: a dataclass field made by `option`.

One declaration defines the constructor's keyword, the command-line flag, the help table, the search type of `tune`, the
saved configuration and the documentation. This module imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import operator
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from xagents.options.errors import OptionError, did_you_mean, format_value
from xagents.options.foreign_names import option_hint
from xagents.options.rules import Rule, Rules

SearchType = Literal['int', 'log_uniform', 'categorical']
# the bounds that a number may have, and the comparison that is true when a value violates the bound
BOUNDS = {'at_least': operator.lt, 'above': operator.le, 'at_most': operator.gt, 'below': operator.ge}

# the largest seed of NumPy's old generators, which environments may use
LARGEST_SEED = 2**32 - 1
# the characters of the name in a key=value pair, in words
NAME_CHARACTERS = 'letters, digits and _'


@dataclasses.dataclass(frozen=True)
class Option:
    """The declaration of one option.

    `type` is the type of a single value, `none_word` the word for None on the command line.
    """

    name: str
    type: type
    default: Any
    help: str
    tune: SearchType | None = None
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    choices: tuple | None = None
    is_list: bool = False
    optional: bool = False
    aliases: tuple[str, ...] = ()
    metavar: str = ''
    replaces: str = ''
    ignored: bool = False
    none_word: str = 'none'

    @property
    def flag(self) -> str:
        """The command-line flag, with its dashes."""
        return '--' + self.name.replace('_', '-')

    @property
    def flags(self) -> list[str]:
        """Every flag that sets the option: first its main flag, last the flags that turn a switch off."""
        names = [self.flag, *('--' + alias.replace('_', '-') for alias in self.aliases)]
        return names + [f'--no-{name[2:]}' for name in names if self.type is bool]

    @property
    def accepts_multiple(self) -> bool:
        """Whether several words may follow the flag."""
        return self.is_list or self.type is dict

    @property
    def expected(self) -> str:
        """The expected values, in words."""
        if self.choices is not None:
            return 'one of ' + ', '.join(map(str, self.choices))
        if self.type is dict:
            return 'key=value pairs'
        kind = {int: 'a whole number', float: 'a number', bool: 'true or false', str: 'text'}[self.type]
        bounds = ' and '.join(f'{name.replace("_", " ")} {bound:.12g}' for name, bound in self._bounds())
        word = '' if self.none_word == 'none' else f' or {self.none_word}'
        return f'{kind} {bounds}'.rstrip() + word

    def _bounds(self) -> list[tuple[str, float]]:
        return [(name, bound) for name in BOUNDS if (bound := getattr(self, name)) is not None]

    def check(self, value: Any) -> Any:
        """Return `value` converted to the option's type.

        Raises:
            OptionError: if the value is not valid; the message has the value and the expected values.
        """
        if value is None or (isinstance(value, str) and value == self.none_word != 'none'):
            if self.optional:
                return None
            raise OptionError(self.name, f'got nothing, expected {self.expected}')
        if self.type is dict:
            if not isinstance(value, Mapping):
                got = f'got {format_value(value)}'
                raise OptionError(self.name, f'{got}, expected a dict, or key=value pairs on the command line')
            return dict(value)
        if not self.is_list:
            return self._check_one(value)
        if isinstance(value, Mapping):  # its values would be lost
            raise self._value_error(value)
        # an array without dimensions has __iter__ but cannot be iterated
        if isinstance(value, str) or not isinstance(value, Iterable) or getattr(value, 'ndim', 1) == 0:
            value = [value]
        return [self._check_one(v) for v in value]

    def parse(self, text: str | list[str]) -> Any:
        """Return the checked value of a typed word, or a list if the option takes several words.

        Raises:
            OptionError: if a word is not valid.
        """
        if self.type is dict:
            return self._parse_pairs(text)
        return list(map(self._parse_one, text)) if self.is_list else self._parse_one(typing.cast(str, text))

    def _parse_pairs(self, texts: Iterable[str]) -> dict[str, Any]:
        pairs: dict[str, Any] = {}
        for text in texts:
            key, value = self._parse_pair(text)
            if key in pairs:
                raise OptionError(self.name, f'got {key} twice, expected each name once')
            pairs[key] = value
        return pairs

    def _parse_pair(self, text: str) -> tuple[str, Any]:
        key, equals, value = text.partition('=')
        if not equals:
            raise self._value_error(text, typed=True)
        if not key.isidentifier():
            problem = f'got {format_value(text)}, expected a name of {NAME_CHARACTERS} before ='
            raise OptionError(self.name, problem)
        return key, value_of_text(value)

    def _parse_one(self, text: str) -> Any:
        is_closed = self.type in (int, float) or self.choices is not None
        if text == self.none_word and self.optional and is_closed and text not in (self.choices or ()):
            return None  # the word overrides a default, or the value of a file or a run directory
        value: Any = text
        try:
            if self.type is bool:
                value = {'true': True, 'false': False}.get(text.lower(), text)
            elif self.type is not str:
                # int() keeps all digits of a seed; float() accepts 1e6 for a whole number
                value = int(text) if self.type is int and text.strip().lstrip('+-').isdecimal() else float(text)
            return self._check_one(value)
        except ValueError:  # the message shows the typed word, not the converted value
            raise self._value_error(text, typed=True) from None

    def _check_one(self, value: Any) -> Any:
        # NumPy scalars are accepted like Python scalars
        value = value.item() if hasattr(value, 'item') and getattr(value, 'ndim', 0) == 0 else value
        if self.type is str:
            value = value.__fspath__() if hasattr(value, '__fspath__') else value
            if not callable(value) and not (isinstance(value, str) and value):
                raise self._value_error(value)
        elif self.type is bool and not isinstance(value, bool):
            raise self._value_error(value)
        elif self.type in (int, float):
            value = self._check_number(value)
        outside = any(BOUNDS[name](value, bound) for name, bound in self._bounds())
        if outside or (self.choices is not None and value not in self.choices):
            raise self._value_error(value)
        return value

    def _check_number(self, value: Any) -> int | float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._value_error(value)
        try:
            number = self.type(value)
        except (
            ValueError,
            OverflowError,
        ):  # NaN or infinity for an integer, or an integer too large for a float
            raise self._value_error(value) from None
        if (number != value or _exceeds_64_bits(number)) if self.type is int else not math.isfinite(number):
            raise self._value_error(value)
        return number

    def _value_error(self, value: Any, typed: bool = False) -> OptionError:
        # quotes distinguish a text from a number, but not on a command line
        text = format_value(value) if typed or self.type is str or not isinstance(value, str) else repr(value)
        hint = did_you_mean(str(value), map(str, self.choices)) if self.choices else ''
        hint = ' of 64 bits' if self.type is int and self.at_most is None and _exceeds_64_bits(value) else hint
        return OptionError(self.name, f'got {text}, expected {self.expected}{hint}')


def value_of_text(text: str) -> Any:
    """Return the value in a typed `key=value`: JSON, True, False or None as in Python, or otherwise the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # also JSON that is nested too deep or contains too long a number
        return {'True': True, 'False': False, 'None': None}.get(text, text)


def _text_of_value(value: Any) -> str:
    """Return the text of `key=value` that `value_of_text` reads as this value: plain text if possible, or JSON."""
    return value if isinstance(value, str) and value_of_text(value) == value else json.dumps(value)


def _exceeds_64_bits(value: Any) -> bool:
    """Return whether a number, or a string that contains a number, is finite and exceeds 64 bits."""
    try:
        return 2**63 <= abs(value if isinstance(value, int) else float(value)) < math.inf
    except (ValueError, TypeError):
        return False


_DECLARED_FIELDS = {field.name for field in dataclasses.fields(Option)}
_DECLARED_FIELDS -= {'name', 'type', 'default', 'help', 'is_list', 'optional'}


def option(default: Any, help: str, **declaration: Any) -> Any:
    """Declare an option as a dataclass field.

    Args:
        default: the default; None means "not given".
        help: one line; for a number, also the effect of a larger value.
        declaration: the other fields of `Option`: tune, at_least, above, at_most, below, choices, aliases, metavar,
            replaces, ignored (accepted because related agents have the option; the agent warns once).
    """
    for field in declaration.keys() - _DECLARED_FIELDS:
        expected = f'one of {", ".join(sorted(_DECLARED_FIELDS))}{did_you_mean(field, _DECLARED_FIELDS)}'
        raise TypeError(f'option: got {field}=, expected {expected}')
    if declaration.get('tune') not in (None, *typing.get_args(SearchType)):
        expected = f'one of {", ".join(typing.get_args(SearchType))}'
        raise TypeError(f'option: tune: got {format_value(declaration["tune"])}, expected {expected}')
    metadata = {'help': help, **declaration}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


# kinds of options: a whole number from 1, a share between 0 and 1, the decay of a running mean, a factor, a weight;
# `tune` does not search a `count` or a `fraction`
count = functools.partial(option, at_least=1)
fraction = functools.partial(option, at_least=0, at_most=1)
tuned_count = functools.partial(count, tune='int')
tuned_fraction = functools.partial(fraction, tune='log_uniform')
decay_rate = functools.partial(option, at_least=0, below=1, tune='log_uniform')
positive = functools.partial(option, above=0, tune='log_uniform')
weight = functools.partial(option, at_least=0, tune='log_uniform')
choice = functools.partial(option, tune='categorical')
seed_number = functools.partial(option, at_least=0, at_most=LARGEST_SEED)
schedule = functools.partial(option, 'constant', choices=('constant', 'linear', 'cosine'))
# options that are None by default, and the word for their values on the help pages
folder = functools.partial(option, None, metavar='DIR')
path = functools.partial(option, None, metavar='PATH')
file = functools.partial(option, None, metavar='FILE')
network_file = functools.partial(option, None, metavar='CFG')
named = functools.partial(option, None, metavar='NAME')
dataset_name = functools.partial(option, None, metavar='DATASET')
steps = functools.partial(count, None, metavar='STEPS')


def changed(parent: type, name: str, default: Any, **declaration: Any) -> Any:
    """Declare a parent's option with another default; `declaration` changes other fields of `Option`."""
    field = parent.__dataclass_fields__[name]  # type: ignore[attr-defined]
    return option(default, **{**field.metadata, **declaration})


def declared_options(declaration: type) -> dict[str, Option]:
    """Return the options of a dataclass by name, parents first."""
    return dict(_declared_options(declaration))


def resolve_aliases(given: Mapping[str, Any], known: Mapping[str, Option], place: str = '') -> dict[str, Any]:
    """Return `given` with every option under its own name instead of an alias.

    Raises:
        OptionError: for an option given under two names, or, if `place` is given, an unknown name.
    """
    aliases = {alias: option.name for option in known.values() for alias in option.aliases}
    names: dict[str, Any] = {}
    for given_name, value in given.items():
        name = aliases.get(given_name, given_name)
        if name in names:
            raise OptionError(given_name, f'is another name of {name}, expected one of the two')
        if place and name not in known:
            raise OptionError(name, f'is no option {place}{option_hint(name, [*known, *aliases])}')
        names[name] = value
    return names


@functools.cache
def _declared_options(declaration: type) -> dict[str, Option]:
    hints = typing.get_type_hints(declaration)
    name = declaration.__name__
    if vars(declaration).get('__annotations__') and '__dataclass_fields__' not in vars(declaration):
        raise TypeError(
            f'{name} declares {", ".join(vars(declaration)["__annotations__"])} without @dataclass above it'
        )
    for field in dataclasses.fields(declaration):
        if 'help' not in field.metadata:
            expected = f"expected {field.name}: … = option(default, 'help')"
            raise TypeError(f'{name} declares {field.name} without option(), {expected}')
    return {f.name: _declared_option(f, hints[f.name]) for f in dataclasses.fields(declaration)}


def _declared_option(field: dataclasses.Field, hint: Any) -> Option:
    alternatives = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    optional = type(None) in alternatives
    kind = next(a for a in alternatives if a is not type(None))
    many = typing.get_origin(kind) is list
    single = typing.get_args(kind)[0] if many else typing.get_origin(kind) or kind
    missing = field.default is dataclasses.MISSING
    default = field.default_factory() if missing else field.default  # type: ignore[operator,misc]
    return Option(field.name, single, default, is_list=many, optional=optional, **field.metadata)


class Options:
    """Base class of all dataclasses of options.

    Attributes:
        given_names: names of the options that were given; the others have their defaults.
        ranges: search space of `xagents tune --search`: two bounds or several choices, by the name of the option.
        rules: combinations of these options that are refused, in addition to those of base classes.

    Options from `resolve` are frozen: `changed` returns a copy with other values.
    """

    given_names: frozenset[str] = frozenset()
    ranges: typing.ClassVar[Mapping[str, tuple]] = {}
    rules: typing.ClassVar[Rules] = ()

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if 'check' in vars(cls):
            raise TypeError(f'{cls.__name__}.check: got a method, expected rules (see xagents.options.rules)')

    @classmethod
    def resolve(cls, given: Mapping[str, Any] | None = None) -> typing.Self:
        """Return checked options; options that are not given have their defaults.

        Raises:
            OptionError: for an unknown name or a value that is not valid.
        """
        known = declared_options(cls)
        values = resolve_aliases(given or {}, known, 'here')
        checked = {name: known[name].check(value) for name, value in values.items()}
        for name in checked:
            other = known[name].replaces
            if other in checked and checked[name] is not None:
                raise OptionError(name, f'cannot be used with {known[other].flag}, expected one of the two')
        options = cls(**checked)
        options.given_names = frozenset(checked)
        options.complete()
        for rule in cls.all_rules():
            rule.check(options)
        return options._freeze()

    @classmethod
    def all_rules(cls) -> list[Rule]:
        """Return the rules of this class and its base classes, those of base classes first."""
        return [rule for base in reversed(cls.__mro__) for rule in vars(base).get('rules', ())]

    def _freeze(self) -> typing.Self:
        self.__dict__['_is_frozen'] = True
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get('_is_frozen'):
            raise AttributeError(f'{name}: options cannot change, use changed({name}=…), which returns a copy')
        super().__setattr__(name, value)

    def changed(self, **values: Any) -> typing.Self:
        """Return a copy with other values, which are not checked."""
        copied = dataclasses.replace(self, **values)  # type: ignore[type-var]
        copied.given_names = self.given_names
        return copied._freeze()

    @classmethod
    def ignored_options(cls) -> set[str]:
        """Return the names of options without effect, which are accepted because related agents have them."""
        return {name for name, option in declared_options(cls).items() if option.ignored}

    def complete(self) -> None:
        """Set options whose defaults depend on other ones, before the rules are checked."""

    def asdict(self) -> dict[str, Any]:
        """Return the options as a flat dict."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]


def signature(positional: Iterable[str], *declarations: type) -> inspect.Signature:
    """Return the signature of a callable that takes `positional` and the options of `declarations` as keywords."""
    known = {name: o for declaration in declarations for name, o in declared_options(declaration).items()}
    parameters = {name: inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in positional}
    for name, o in known.items():
        parameters.setdefault(name, inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=o.default))
    return inspect.Signature([*parameters.values()])


def to_flags(options: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line that set options, given by name; options that are None are omitted."""
    words: list[str] = []
    for name, value in options.items():
        flag = '--' + name.replace('_', '-')
        if isinstance(value, bool):
            words.append(flag if value else f'--no-{flag[2:]}')
        elif isinstance(value, Mapping):
            words += [flag, *(f'{key}={_text_of_value(one)}' for key, one in value.items())]
        elif isinstance(value, str) and value.startswith('-'):  # as a separate word it would be parsed as a flag
            words.append(f'{flag}={value}')
        elif value is not None:
            words += [flag, *map(str, value if isinstance(value, (list, tuple)) else [value])]
    return words


def effective_options(
    candidates: Mapping[str, Any], given: Mapping[str, Any], known: Mapping[str, Option]
) -> dict[str, Any]:
    """Return the candidates that the given options do not override.

    A given option overrides the candidate of its name, the option it replaces and the options that replace it.
    """
    overridden = given.keys() | {option.replaces for name, option in known.items() if name in given}
    overridden |= {name for name, option in known.items() if option.replaces in given}
    return {name: value for name, value in candidates.items() if name not in overridden}
