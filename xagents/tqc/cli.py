"""The options of TQC. Does not load TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xagents.options.declaration import count, option
from xagents.options.errors import OptionError
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

    def check(self) -> None:
        """Check that targets keep a quantile."""
        super().check()
        if self.dropped_quantiles >= self.n_quantiles:
            expected = f'expected less than the {self.n_quantiles} of --n-quantiles'
            raise OptionError('dropped_quantiles', f'got {self.dropped_quantiles}, {expected}')
