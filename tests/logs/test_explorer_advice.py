"""What is said at the end of a run of its explorers."""

from xagents.logs.console import ExplorerStatistics


def test_means_and_the_last_counts_are_said():
    fared = ExplorerStatistics()
    for busy, lag, most, lost in ((0.5, 0.0, 0.0, 0.0), (1.0, 1.5, 3.0, 2.0)):
        own = {'alive': 4.0, 'busy': busy, 'lag': lag, 'most_lag': most, 'lost': lost, 'lost_environments': 0.0}
        fared.add({f'explorers/{name}': value for name, value in own.items()})
    assert fared.line() == (
        'Explorers: 4, 75 % busy; their steps were 0.8 rollouts old, at most 3; 2 were lost, 0 environments were reset'
    )
