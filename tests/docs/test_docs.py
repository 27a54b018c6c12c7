"""The docs: what is made of the code is up to date, and links, commands and formulas are sound."""

import importlib.util
import itertools
import re
import shlex
import shutil
from pathlib import Path

import pytest

import xagents
from xagents.cli.commands import commands
from xagents.cli.dispatch import parse
from xagents.datasets import dataset_names
from xagents.networks.optimisation.gradient_steps import COUNTS
from xagents.options.commands import (
    CompareOptions,
    DatasetRecordingOptions,
    DoctorOptions,
    EvaluateOptions,
    PlayOptions,
    PlotOptions,
    TuneOptions,
)
from xagents.options.declaration import declared_options
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.options.runs import RunOptions, SessionOptions, TrainOptions
from xagents.registry.agents import agents

ROOT = Path(xagents.__file__).parents[1]
PAGES = sorted((ROOT / 'docs' / 'agents').glob('*.md'))
OTHERS = [ROOT / 'README.md']
OTHERS += [
    ROOT / 'docs' / f'{name}.md'
    for name in (
        *('guide', 'recipes', 'runs', 'explorers', 'datasets', 'hindsight', 'teams', 'tuning', 'populations'),
        *('policy', 'microcontroller', 'coming_from', 'gallery', 'report', 'compare', 'doctor', 'benchmarks'),
    )
]
# their commands need what they show: they are admitted in tests/registry
EXTENDING = [ROOT / 'docs' / 'extending.md', ROOT / 'examples' / 'own_parts' / 'README.md']
GROUPS = [
    *(EnvironmentOptions, NetworkOptions, RunOptions, SessionOptions, TrainOptions, TuneOptions),
    *(PlayOptions, EvaluateOptions, PlotOptions, CompareOptions, DatasetRecordingOptions, DoctorOptions),
    *(entry.options for entry in agents.values()),
]
# what a larger one does cannot be said: a name, a place
NO_SIZE = {'seed', 'action_idx'}
SAYS_WHAT_MORE_DOES = re.compile(r'\b(larger|more|longer)\b')
LINK = re.compile(r'\[[^]]*\]\(([^)\s]+)\)')


def load_writer():
    specification = importlib.util.spec_from_file_location('write_agents', ROOT / 'docs' / 'write_agents.py')
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


writer = load_writer()


def without_lines(text):
    """A page without the line numbers in its links to code, which every edit moves."""
    return re.sub(r'(\.py)#L\d+', r'\1', text)


def prose(text):
    """A page without blocks and spans of code."""
    return re.sub(r'`[^`\n]*`', '', re.sub(r'^```.*?^```', '', text, flags=re.DOTALL | re.MULTILINE))


def test_a_page_of_benchmarks_without_the_meanings_of_columns_is_refused():
    with pytest.raises(ValueError, match='lacks the table with the heading'):
        writer.column_meanings('| name | meaning |\n|---|---|\n| median | of seeds |\n')


@pytest.fixture
def copies(tmp_path):
    for page in PAGES:
        shutil.copy(page, tmp_path)
    return tmp_path


def test_every_agent_has_a_page_and_every_page_an_agent():
    assert sorted(page.stem for page in PAGES) == sorted(agents)
    assert writer.CASES.keys() == agents.keys()


def test_generated_parts_are_up_to_date(copies):
    writer.write_all(copies)
    for page in PAGES:
        made = without_lines((copies / page.name).read_text())
        assert made == without_lines(page.read_text()), f'{page.name} is not up to date: run `make docs`'


def test_changes_between_markers_are_overwritten_and_prose_is_not(copies):
    page = copies / 'ppo.md'
    text = page.read_text()
    row = next(line for line in text.splitlines() if line.startswith('| `--clip-norm`'))
    page.write_text(text.replace(f'{row}\n', '').replace('Start with this one.', 'Words of my own.'))
    writer.write_all(copies)
    assert row in page.read_text() and 'Words of my own.' in page.read_text()


def test_a_page_without_markers_is_refused(copies):
    page = copies / 'dqn.md'
    page.write_text(page.read_text().replace('<!-- benchmark scores -->', ''))
    with pytest.raises(ValueError, match='has no markers <!-- benchmark scores -->'):
        writer.write_all(copies)


@pytest.mark.parametrize('entry', agents.values(), ids=lambda entry: entry.id)
def test_every_option_stands_once_in_the_table_its_own_first(entry):
    rows = re.findall(r'^\| `(--[\w-]+)`', writer.sections(entry, '')['options'], re.MULTILINE)
    known = declared_options(entry.options)
    assert sorted(rows) == sorted(option.flag for option in known.values())
    titles = [title for title, _ in writer.groups(entry)]
    assert titles[0] == f'{writer.display_name(entry)} itself' and 'Every agent' in titles[-2:]


# ---------------------------------------------------------------------------------------------------------------- links


def test_a_link_leads_to_the_definition_it_names(tmp_path):
    (tmp_path / 'code.py').write_text('def f(): ...\n\n\nclass C:\n    x = 1\n\n    def f(self): ...\n')
    text = '[`f`](code.py) [`C`](code.py#L99) [`C.f`](code.py#L1)'
    assert writer.with_lines(text, tmp_path) == '[`f`](code.py#L1) [`C`](code.py#L4) [`C.f`](code.py#L7)'
    for wrong in ('[`C.g`](code.py)', '[`f`](other.py)'):
        with pytest.raises(ValueError, match='is not defined in'):
            writer.with_lines(wrong, tmp_path)


@pytest.mark.parametrize('page', [*PAGES, *OTHERS, *EXTENDING], ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    text = prose(re.sub(r'\[`([^`]*)`\]', r'[\1]', page.read_text()))
    for target in LINK.findall(text):
        path, _, anchor = target.partition('#')
        if target.startswith('https://'):
            continue
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f'{page.name}: {target}'
        if anchor and linked.suffix == '.md':
            headings = re.findall(r'^#+ (.*)', linked.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r'[^\w -]', '', h.lower()).replace(' ', '-') for h in headings}, target


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_is_defined_where_it_says(page):
    links = list(writer.LINK.finditer(page.read_text()))
    assert len(links) >= 10
    for link in links:
        assert writer.line_of(link, page.parent) > 0
    details = page.read_text().partition('## Implementation details')[2].partition('\n## ')[0]
    _, *parts = re.split(r'^(\d+)\. ', details, flags=re.MULTILINE)
    assert parts[::2] == [str(i + 1) for i in range(len(parts) // 2)] and 10 <= len(parts) // 2 <= 20
    for detail in parts[1::2]:
        assert writer.LINK.search(detail), f'{page.name}: links to no function: {detail}'


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.stem)
def test_a_page_has_a_row_for_every_metric(page):
    # 'policy_updates' is what DDPG's own means are made of; nobody sees it
    metrics = {*COUNTS, *agents[page.stem].agent.METRICS} - {'policy_updates'}
    table = page.read_text().partition('## Metrics')[2].partition('## Options')[0]
    rows = set(re.findall(r'`([\w/]+)`', ' '.join(re.findall(r'^\| ([^|]*) \|', table, re.MULTILINE))))
    assert metrics <= rows


# ------------------------------------------------------------------------------------------------------------- commands


def typed_commands(text):
    """The `xagents` commands in blocks of code, also those that go over several lines."""
    fences = re.findall(r'^```(\w*)\n(.*?)^```', text, re.DOTALL | re.MULTILINE)
    blocks = [block for language, block in fences if not language]
    lines = '\n'.join(blocks).replace('\\\n', ' ').splitlines()
    # what stands behind a > is the shell's
    lines = [line.partition(' > ')[0] for line in lines]
    return [shlex.split(line, comments=True) for line in lines if re.match(r'(\w+=\S+ )*xagents ', line)]


def make_what_is_named(words):
    """Let the run folders and settings exist that a command goes on from."""
    settings = 'agent: ppo\nenv: CartPole-v1\n'
    named = dict(itertools.pairwise(words))
    for flag in ('--run-dir', '--resume'):
        if flag in named and (words[0] != 'train' or flag == '--resume'):
            Path(named[flag]).mkdir(parents=True, exist_ok=True)
            Path(named[flag], 'config.yaml').write_text(settings)
    if '--config' in named:
        Path(named['--config']).write_text(settings)


@pytest.mark.parametrize('page', [*PAGES, *OTHERS[:-1]], ids=lambda page: page.stem)
def test_commands_are_admitted(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(dataset_names.ROOT, str(tmp_path / 'datasets'))
    found = typed_commands(page.read_text())
    assert found or page.stem in ('recipes', 'gallery')
    for words in found:
        words = words[words.index('xagents') + 1 :]
        command, rest = commands[words[0]], words[1:]
        make_what_is_named(words)
        typed = command.takes_agent and not rest[0].startswith('-')
        agent_id = rest[0] if typed else command.find_agent_id(rest) if command.takes_agent else None
        assert agent_id or not command.takes_agent, words
        paths, given = parse(command, agent_id, rest[1:] if typed else rest)
        command.check(agent_id or paths, given)


@pytest.mark.parametrize('entry', agents.values(), ids=lambda entry: entry.id)
def test_the_command_and_its_python_say_the_same(entry, monkeypatch):
    text = writer.commands(entry)
    (words,) = typed_commands(text)
    _, given = parse(commands['train'], entry.id, words[3:])
    made, ends = {}, {}

    class Agent:
        def fit(self, **options):
            ends.update(options)

        def evaluate(self, episodes): ...

    def make(agent_id, env=None, **options):
        made.update(options, agent_id=agent_id, **({} if env is None else {'env': env}))
        return Agent()

    monkeypatch.setattr(xagents, 'make', make)
    exec(re.search(r'```python\n(.*?)```', text, re.DOTALL)[1], {})
    assert {**made, **ends} == {**given, 'agent_id': entry.id}


# -------------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize('group', GROUPS, ids=lambda group: group.__name__)
def test_a_numbers_help_says_what_a_larger_one_does(group):
    for option in declared_options(group).values():
        spoken = option.type in (int, float) and option.name not in NO_SIZE
        if spoken and not option.ignored and not option.help.startswith('not supported'):
            assert SAYS_WHAT_MORE_DOES.search(option.help), f'--{option.name}: {option.help}'
        assert option.help and '\n' not in option.help


# ------------------------------------------------------------------------------------------------------------- formulas


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.stem)
def test_formulas_hold_nothing_that_markdown_takes_for_its_own(page):
    text = prose(page.read_text())
    blocks = re.findall(r'^\$\$\n(.*?)^\$\$$', text, re.DOTALL | re.MULTILINE)
    rest = re.sub(r'^\$\$\n.*?^\$\$$', '', text, flags=re.DOTALL | re.MULTILINE)
    assert blocks and all(line.count('$') % 2 == 0 for line in rest.splitlines())
    for formula in blocks + re.findall(r'\$([^$\n]+)\$', rest):
        # emphasis, escapes, tables and tags
        assert not re.search(r'(?<![A-Za-z0-9])_|\\[^A-Za-z]|[*<|]', formula), formula
        opened, closed = (len(re.findall(rf'\\{side}(?![a-z])', formula)) for side in ('left', 'right'))
        assert opened == closed and formula.count('{') == formula.count('}'), formula


def test_tables_have_rows_of_one_length():
    for page in PAGES:
        for block in re.findall(r'(?:^\|.*\n)+', page.read_text(), re.MULTILINE):
            assert len({len(re.findall(r'(?<!\\)\|', line)) for line in block.splitlines()}) == 1, (page.name, block)
