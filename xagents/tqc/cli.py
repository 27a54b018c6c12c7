"""The options of TQC. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.options.declaration import count, option
from xagents.options.rules import Rule, Rules
from xagents.sac.cli import SACOptions


@dataclass
class TQCOptions(SACOptions):
    """Truncated quantile critics."""

    ranges: ClassVar = {**SACOptions.ranges, 'dropped_quantiles': (0, 1, 2, 3, 5)}
    forms: ClassVar = (*SACOptions.forms, 'n_quantiles')
    constants: ClassVar = ('dropped_quantiles',)

    n_quantiles: int = count(
        25,
        'quantiles of the values of each critic; larger values describe their distribution more finely and are slower',
    )
    dropped_quantiles: int = option(
        2,
        'largest quantiles of each critic that targets leave out; larger values estimate lower values',
        at_least=0,
        tune='categorical',
    )

    rules: ClassVar[Rules] = (
        Rule(
            'dropped_quantiles',
            lambda o: o.dropped_quantiles >= o.n_quantiles,
            'got {o.dropped_quantiles}, expected less than the {o.n_quantiles} of --n-quantiles',
        ),
    )
