"""Seconds of the phases of a run, from its metrics."""

import numpy as np
import pandas as pd
import pytest

from xagents.logs.console import phase_seconds

NAN = np.nan


def test_first_rows_of_each_phase_are_left_out():
    # acting is compiled in the first row, learning begins in the third
    rows = {'act': [90.0, 1.0, 5.0, 1.0, 1.0], 'env': [2.0, 2.0, 2.0, 2.0, 2.0], 'learn': [NAN, NAN, 80.0, 4.0, 4.0]}
    metrics = pd.DataFrame({'steps': range(5), **{f'seconds/{name}': values for name, values in rows.items()}})
    found = phase_seconds(metrics)
    assert list(found.items()) == [('env', 6.0), ('act', 3.0), ('learn', 8.0)]


@pytest.mark.parametrize(
    ('metrics', 'expected'),
    [
        ({'steps': [], 'seconds/act': []}, {'act': 0.0}),
        ({'steps': [1, 2]}, {}),
        ({'steps': [1], 'seconds/act': [3.0]}, {'act': 3.0}),
        ({'steps': [1, 2], 'seconds/act': [NAN, 3.0], 'seconds/replay': [NAN, NAN]}, {'act': 3.0, 'replay': 0.0}),
    ],
)
def test_few_rows(metrics, expected):
    assert phase_seconds(pd.DataFrame(metrics)) == expected
