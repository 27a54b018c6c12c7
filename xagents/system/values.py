"""Values as JSON and YAML hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def to_plain_value(value: Any, finite: bool = False) -> Any:
    """Return a value as mappings, lists, texts, numbers and None; what is none of these as its text.

    NumPy's numbers and arrays become Python's. With `finite`, numbers that are not, which JSON lacks, become None.
    """
    if isinstance(value, Mapping):
        return {str(name): to_plain_value(one, finite) for name, one in value.items()}
    if hasattr(value, 'tolist'):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [to_plain_value(one, finite) for one in value]
    if isinstance(value, float) and finite and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)
