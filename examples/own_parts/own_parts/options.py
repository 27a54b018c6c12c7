"""The options of AWR, in a module that does not import TensorFlow."""

from dataclasses import dataclass
from typing import ClassVar

from xagents.a2c.cli import A2COptions
from xagents.options import changed, option


@dataclass
class AWROptions(A2COptions):
    """The options of A2C and the temperature of the weights."""

    # the ranges of `xagents tune --search`
    ranges: ClassVar = {**A2COptions.ranges, 'temperature': (0.1, 10.0)}

    n_steps: int = changed(A2COptions, 'n_steps', 32)
    normalize_advantage: bool = changed(A2COptions, 'normalize_advantage', True)
    temperature: float = option(
        1.0, 'temperature of the weights; a larger value weights actions more equally', above=0, tune='log_uniform'
    )
