"""The keywords that editors and type checkers know are those that the functions accept."""

import subprocess
import sys

import pytest

from docs import write_keywords
from docs.site import pages
from xagents.options.keywords import FitKeywords, MakeKeywords, TuneKeywords
from xagents.registry.agents import BUILTIN_AGENTS, find_agent
from xagents.tuning.plan import known_options


def test_the_file_of_keywords_is_up_to_date():
    """Fails after an option was changed: run docs/write_keywords.py."""
    assert write_keywords.FILE.read_text() == write_keywords.text()


def test_the_keywords_are_the_options():
    for entry in BUILTIN_AGENTS.values():
        assert entry.options_in('environment', 'network', 'agent', 'run').keys() - {'env'} <= set(
            MakeKeywords.__annotations__
        )
        assert known_options(entry).keys() - {'env'} <= set(TuneKeywords.__annotations__)
    assert find_agent('ppo').options_in('run').keys() - set(FitKeywords.__annotations__) == {'target_reward'}


def test_the_page_of_the_api_lists_signatures_and_keywords():
    page = pages.names_page()
    made = page.partition('## xagents.make\n')[2].partition('\n## ')[0]
    assert 'make(agent_id: str, env: Any=None' in made and '`n_envs`' in made and '`clip_norm`' in made
    fitted = page.partition('## agent.fit\n')[2]
    assert 'target_reward: float | None=None' in fitted and '`max_steps`' in fitted


@pytest.mark.slow
def test_a_type_checker_refuses_wrong_keywords():
    words = [sys.executable, '-m', 'mypy', '--warn-unused-ignores', 'tests/typed_calls.py']
    done = subprocess.run(words, cwd=write_keywords.FILE.parents[2], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout
