"""The table of the page about spaces: each agent learns or refuses what each cell says."""

import contextlib

import pytest

import xagents
from tests.agents.contract import CASES
from tests.agents.features import ANYTHING, FEATURES, MASKED, NIM, Feature
from tests.docs.test_docs import ROOT
from xagents.options.errors import OptionError

# the features of each column; one that an agent learns is enough for a yes
COLUMNS = {
    'Discrete': [Feature(ANYTHING, ())],
    'MultiDiscrete, MultiBinary': [
        Feature(MASKED, (), {'n': 2, 'where': 'nowhere', 'several': True}),
        FEATURES['binary actions'],
    ],
    'Box actions': [Feature(ANYTHING, (), {'actions': 'continuous'})],
    'masks': [FEATURES['masks']],
    'mixed actions': [FEATURES['mixed actions']],
    'images with vectors': [feature for name, feature in FEATURES.items() if name.startswith('images')],
    'critic-only parts': [feature for name, feature in FEATURES.items() if name.startswith('critic-only')],
    'memory': [feature for name, feature in FEATURES.items() if name.startswith('memory')],
}
# columns of which an agent learns every feature, or none
WHOLE = ('MultiDiscrete, MultiBinary',)
TRAINED = ('masks', 'mixed actions', 'images with vectors', 'critic-only parts', 'memory')


def cells():
    """Return for each agent what the table says of each column."""
    lines = [line for line in (ROOT / 'docs' / 'spaces.md').read_text().splitlines() if line.startswith('| ')]
    heading, *rows = ([cell.strip() for cell in line.strip('|').split('|')] for line in lines[:16])
    found = {}
    for name, *said in rows:
        agent_id = name.lower().replace('+', '-')
        assert set(said) <= {'yes', 'no'}
        found[agent_id] = {column: cell == 'yes' for column, cell in zip(heading[1:], said, strict=True)}
    return found


TABLE = cells()


def learns(feature, agent_id):
    """Return whether the agent can be made for a feature; a refusal is one line."""
    try:
        feature.make(agent_id).close()
    except OptionError as error:
        assert '\n' not in str(error)
        return False
    return True


def test_every_agent_has_a_row_and_every_column_is_tested():
    assert TABLE.keys() == CASES.keys()
    assert all([*row] == [*COLUMNS, 'self-play'] for row in TABLE.values())


def test_agents_train_with_each_feature_that_the_table_promises():
    for column in TRAINED:
        trained = {agent for feature in COLUMNS[column] for agent in feature.agents}
        assert trained == {agent for agent, row in TABLE.items() if row[column]}, column


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('agent_id', CASES)
def test_agents_learn_or_refuse_what_the_table_says(agent_id):
    found = {}
    for column, features in COLUMNS.items():
        learned = [learns(one, agent_id) for one in features]
        assert column not in WHOLE or len({*learned}) == 1, column
        found[column] = any(learned)
    assert found == {column: TABLE[agent_id][column] for column in COLUMNS}


@pytest.mark.usefixtures('eager')
@pytest.mark.parametrize('agent_id', CASES)
def test_agents_play_games_or_refuse_them(agent_id):
    case = CASES[agent_id]
    source = {'dataset': FEATURES['masks'].record()} if case.offline else {'env': NIM, 'n_envs': 2}
    try:
        agent = xagents.make(agent_id, **source, **{'net': [8], **case.options})
        with contextlib.closing(agent):
            agent.fit(max_steps=60, self_play=True, final_episodes=0, quiet=True)
            assert agent.context.updates > 0
    except OptionError as error:
        assert '\n' not in str(error)
        assert not TABLE[agent_id]['self-play'], error
    else:
        assert TABLE[agent_id]['self-play']
