"""Named numbers of infos: how wrappers and vectors pass them on to `Envs`, which keeps their sums over episodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from xagents.options.errors import OptionError, did_you_mean
from xagents.system.values import describe

# Keys in the infos of environments with an `InfoReader`: the numbers, float64 [K] (with several agents [M, K]), NaN for
# a missing one; the names of other numbers, when new ones appear; and the description of a value that is no number.
NUMBERS, SEEN, WRONG = 'xagents_numbers', 'xagents_seen', 'xagents_wrong'


class InfoReader:
    """A reader of K named numbers in the infos of an environment.

    Args:
        names: the names.

    Attributes:
        seen: the names of all numbers in infos so far.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names, self.seen = tuple(names), set[str]()
        self._keys, self._wrong = set[str](), ''

    def read(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return the named numbers of an info, with the keys `NUMBERS`, `SEEN` and `WRONG`."""
        return self._result(np.array([self._number(info, name) for name in self.names], np.float64), [info])

    def read_agents(self, infos: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the named numbers of the infos of M agents."""
        infos = list(infos)
        return self._result(np.array([[self._number(i, name) for name in self.names] for i in infos]), infos)

    def _number(self, info: Mapping[str, Any], name: str) -> float:
        value = info.get(name)
        if value is None:
            return np.nan
        number = number_of(value)
        if number is None:
            self._wrong = f'{name} in its infos is {_describe_wrong(value)}'
            return np.nan
        return number

    def _result(self, numbers: np.ndarray, infos: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {NUMBERS: numbers}
        for info in infos:
            if new := info.keys() - self._keys:
                self._keys |= new
                texts = (name for name in new if isinstance(name, str))
                self.seen |= {name for name in texts if number_of(info[name]) is not None}
                result[SEEN] = '\n'.join(sorted(self.seen))
        if self._wrong:
            result[WRONG] = self._wrong
        return result


class InfoSums:
    """The named numbers of the last step of N rows, and their sums over the running episodes.

    Args:
        env_id: the name of the environment, for messages.
        n_rows: N.

    Attributes:
        names: the names.
        numbers: float64 [N] of the last step by name; NaN in rows without the number, and in rows that only reset.
        seen: the names of all numbers in infos so far.
    """

    def __init__(self, env_id: str, n_rows: int) -> None:
        self._env_id, self._n_rows, self._keys = env_id, n_rows, set[str]()
        self.names: tuple[str, ...] = ()
        self.numbers: dict[str, np.ndarray] = {}
        self.seen: frozenset[str] = frozenset()
        self.sums: dict[str, np.ndarray] = {}

    def select(self, names: Iterable[str]) -> None:
        """Select the names; sums of names that were selected before continue."""
        self.names = tuple(names)
        self.numbers = {name: np.full(self._n_rows, np.nan) for name in self.names}
        self.sums = {name: self.sums.get(name, np.full(self._n_rows, np.nan)) for name in self.names}

    def load(self, sums: Mapping[str, np.ndarray]) -> None:
        """Restore the sums of the running episodes, by name."""
        empty = {name: np.full(self._n_rows, np.nan) for name in self.names}
        self.sums = {**empty, **{name: np.array(own) for name, own in sums.items()}}

    def reset(self) -> None:
        """Forget the sums of the running episodes."""
        for own in self.sums.values():
            own[:] = np.nan

    def observe(self, info: Mapping[str, Any], valid: np.ndarray) -> None:
        """Add the numbers of a step.

        Args:
            info: the infos of a vector, with the results of an `InfoReader`, or with the values of each name.
            valid: bool [N], False in rows that only reset.

        Raises:
            OptionError: for a value that is no number.
        """
        if NUMBERS in info:
            self._check(info)
            read = np.where(info[f'_{NUMBERS}'][:, None], info[NUMBERS], np.nan)
            rows = dict(zip(self.names, read.T, strict=True))
        else:
            rows = {name: self._column(info, name) for name in self.names}
            if new := info.keys() - self._keys:
                self._keys |= new
                texts = (name for name in new if isinstance(name, str))
                public = (name for name in texts if not name.startswith(('_', 'xagents_')))
                self.seen |= {name for name in public if np.asarray(info[name]).dtype.kind in 'biuf'}
        for name, own in rows.items():
            self.add(name, np.where(valid, own, np.nan))

    def add(self, name: str, numbers: np.ndarray) -> None:
        """Add the numbers [N] of one name; NaN in rows without the number."""
        self.numbers[name], sums = numbers, self.sums[name]
        known = ~np.isnan(numbers)
        sums[known] = np.where(np.isnan(sums[known]), 0.0, sums[known]) + numbers[known]

    def end_episode(self, row: int) -> dict[str, float] | None:
        """Return the sums of the episode of a row that has ended, by name; None if there are none."""
        if not self.names:
            return None
        ended = {name: float(self.sums[name][row]) for name in self.names if not np.isnan(self.sums[name][row])}
        for own in self.sums.values():
            own[row] = np.nan
        return ended

    def _check(self, info: Mapping[str, Any]) -> None:
        if SEEN in info:
            self.seen |= {name for text in info[SEEN] if text for name in text.split('\n')}
        if WRONG in info:
            wrong = next(text for text in info[WRONG] if text)
            raise OptionError('log_info', f'{self._env_id}: {wrong}, expected a number')

    def _column(self, info: Mapping[str, Any], name: str) -> np.ndarray:
        """Return the numbers [N] of a name in the infos of a vector in Gymnasium's form."""
        if name not in info:
            return np.full(self._n_rows, np.nan)
        values, mask = info[name], info.get(f'_{name}')
        array = np.asarray(values)
        if array.shape == (self._n_rows,) and array.dtype.kind in 'biuf':
            return array.astype(np.float64) if mask is None else np.where(mask, array, np.nan)
        column = np.full(self._n_rows, np.nan)
        if not isinstance(values, np.ndarray | list | tuple) or len(values) != self._n_rows:
            raise OptionError(
                'log_info', f'{self._env_id}: {name} in its infos is {describe(values)}, expected numbers'
            )
        for i, value in enumerate(values):
            if value is not None and (mask is None or mask[i]):
                number = number_of(value)
                if number is None:
                    wrong = f'{name} in its infos is {_describe_wrong(value)}'
                    raise OptionError('log_info', f'{self._env_id}: {wrong}, expected a number')
                column[i] = number
        return column


def number_of(value: Any) -> float | None:
    """Return a number, a bool or an array of one element as a float; None for any other value."""
    if type(value) in (float, int, bool):
        try:
            return float(value)
        except OverflowError:
            return None
    try:
        array = np.asarray(value)
    except Exception:  # an info may contain any object
        return None
    return float(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in 'biuf' else None


def _describe_wrong(value: Any) -> str:
    return 'an int beyond the range of floats' if type(value) is int else describe(value)


def missing_message(name: str, env_id: str, seen: Iterable[str]) -> str:
    """Return the warning about a name that no info has contained."""
    known = sorted(seen)
    has = f'its infos have {", ".join(known)}{did_you_mean(name, known)}' if known else 'its infos have no numbers'
    return f'Warning: --log-info {name} has not appeared in {env_id}: {has}'
