"""A finding of a check. Does not load TensorFlow."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """A property of an environment or of a run that can keep an agent from learning.

    Attributes:
        name: what the finding is about, such as `reward-scale`; every finding of one kind has the same name.
        seen: what was measured, with the number.
        meaning: what it does to learning.
        remedy: what helps, with the flag.
    """

    name: str
    seen: str
    meaning: str
    remedy: str

    def __str__(self) -> str:
        return f'{self.name}: {self.seen}. {self.meaning}. {self.remedy}.'
