"""Writes the generated parts of docs/agents/*.md and the README, and the line numbers of links to code: `make docs`.

`python docs/write_agents.py my-agent my-agent.md` does the same for an agent of another package. If the page does not
exist, the script creates it.

Generated parts are between markers; the rest of the pages is written by hand. Options come from their declarations and
commands from the cases of the learning benchmark. Scores, speed and the README's picture come from docs/benchmarks.md.
The script does not load TensorFlow.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# Python adds the folder of a script to the path, but not the root of the repository
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import tables
from benchmarks.learning.cases import LearningCase, find_cases
from benchmarks.speed import summary
from benchmarks.venvs import REPOSITORY
from xagents.cli.usage import format_default
from xagents.options import Option, declared_options
from xagents.options.agents import AgentOptions
from xagents.options.environment import EnvironmentOptions, NetworkOptions
from xagents.registry.agents import BUILTIN_AGENTS, Entry, find_agent

PAGES = REPOSITORY / 'docs' / 'agents'
README = REPOSITORY / 'README.md'
BENCHMARKS = REPOSITORY / 'docs' / 'benchmarks.md'
# the command of the README, which is also the first one on PPO's page
README_CASE = LearningCase(
    'ppo-cartpole', 'ppo', 'CartPole-v1', 500_000, {'target_reward': 250, 'n_envs': 16, 'n_steps': 1024}, seeds=(123,)
)
# a data set, and the settings of the pages that train on it; docs/datasets.md has the commands that record it
PENDULUM: dict[str, Any] = {'env': 'Pendulum-v1', 'steps': 20_000, 'dataset': 'pendulum/medium-v0', 'seeds': (1,)}
SETTINGS: dict[str, Any] = {'net': [64, 64], 'gamma': 0.98, 'eval_frequency': 1000}
# the case of the learning benchmark, or another case, whose command each page shows
CASES: dict[str, str | LearningCase] = {
    'a2c': 'a2c-cartpole',
    'acer': 'acer-cartpole',
    'bc': LearningCase('bc-pendulum', 'bc', options={'eval_frequency': 1000}, **PENDULUM),
    'ddpg': 'ddpg-pendulum',
    'dqn': 'dqn-cartpole',
    'iql': LearningCase('iql-pendulum', 'iql', options={**SETTINGS, 'reward_scale': 0.1}, **PENDULUM),
    'ppo': README_CASE,
    'pqn': 'pqn-cartpole',
    'rainbow': 'rainbow-cartpole',
    'sac': 'sac-pendulum',
    'tqc': 'tqc-pendulum',
    'crossq': 'crossq-pendulum',
    'td3': 'td3-pendulum',
    'td3-bc': LearningCase('td3-bc-pendulum', 'td3-bc', options=SETTINGS, **PENDULUM),
    'trpo': 'trpo-cartpole',
}
# a link to code: `Class.method` or `function`, its file, and its line, which this script updates
LINK = re.compile(r'\[`(?P<name>[\w.]+)`\]\((?P<path>[\w./]+\.py)(?:#L\d+)?\)')
# headings of benchmark tables that only their own page explains, and their replacement on an agent's page
HEADINGS = {
    'times Stable-Baselines3': 'relative to Stable-Baselines3',
    'times SBX': 'relative to SBX',
    'times CleanRL': 'relative to CleanRL',
    'in processor time': 'the same in processor time',
}
TUNED_AS = (
    'Column *tuned as*: how `xagents tune` [searches the option](../tuning.md#searched-options); an option with an '
    'empty cell can only be fixed.'
)
# the heading of the columns' meanings on the page of benchmarks
MEANINGS = '| column | meaning |'
SPEED_NOTE = (
    'steps/s exclude start-up. *relative to* a library: steps/s divided by those of the library; *the same in '
    'processor time*: the ratio for steps per second of processor time. *where the time goes*: the remaining '
    'time is spent outside of these parts. *resident MB*: memory of the process. Brackets contain the smallest and '
    'largest of several repeats; the number before them is the median. Ratios are computed for each repeat. '
    '[The page of benchmarks](../benchmarks.md#method) describes the method, and has the tables of '
    'other machines, whose numbers differ.'
)
# largest width of a command, and of a line of Python (the linter's limit)
WIDTH, LINE = 100, 120


def write_all(pages: Path = PAGES, benchmarks: Path = BENCHMARKS) -> None:
    """Update the generated parts of all agents' pages.

    Raises:
        ValueError: for a link to a function that does not exist, or a page without one of the markers.
    """
    for entry in BUILTIN_AGENTS.values():
        page = pages / f'{entry.id}.md'
        for name, text in sections(entry, benchmarks.read_text()).items():
            if f'<!-- benchmark {name} -->' not in page.read_text():
                raise ValueError(f'{page.name}: has no markers <!-- benchmark {name} -->')
            tables.write_section(page, name, text)
        tables.write_atomically(page, with_lines(page.read_text()))


def write_readme(page: Path = README, benchmarks: Path = BENCHMARKS) -> None:
    """Update the summaries in the README and on the page of benchmarks."""
    summary.write(benchmarks, page)


def write_page(entry: Entry, page: Path, benchmarks: Path = BENCHMARKS) -> None:
    """Update the generated parts of an agent's page, or create the page if it does not exist.

    Raises:
        ValueError: for a link to a function that does not exist.
    """
    made = sections(entry, benchmarks.read_text())
    if not page.exists():
        marked = {'': 'command', '## Options\n\n': 'options', '## Scores\n\n': 'scores', '## Speed\n\n': 'speed'}
        places = [f'{head}<!-- benchmark {n} -->\n<!-- end of benchmark {n} -->\n' for head, n in marked.items()]
        page.write_text('\n'.join([f'# {entry.class_name}: {entry.help}\n', *places]))
    for name, text in made.items():
        if f'<!-- benchmark {name} -->' in page.read_text():
            tables.write_section(page, name, text)
    tables.write_atomically(page, with_lines(page.read_text(), page.resolve().parent))


def sections(entry: Entry, benchmarks: str) -> dict[str, str]:
    """Return the generated parts of an agent's page, by the names of their markers.

    Args:
        entry: registry entry of the agent.
        benchmarks: text of the page of benchmarks, which contains the scores.
    """
    builtin = entry.id in BUILTIN_AGENTS
    tuned_as = TUNED_AS if builtin else re.sub(r'\[([^]]+)\]\([^)]+\)', r'\1', TUNED_AS)
    return {
        'command': commands(entry),
        'options': '\n\n'.join([tuned_as, *(f'**{title}**\n\n{table(group)}' for title, group in groups(entry))]),
        'scores': scores(entry, benchmarks),
        'speed': speed(entry, benchmarks),
    }


# the command


def commands(entry: Entry) -> str:
    """Return a command that trains an agent with settings that are known to work, and the equivalent Python."""
    if entry.id in CASES:
        named = CASES[entry.id]
        case = find_cases([named])[0] if isinstance(named, str) else named
    else:
        continuous = entry.networks and entry.networks[0].output_activation == 'tanh'
        env = 'Pendulum-v1' if continuous else 'CartPole-v1'
        case = LearningCase(f'{entry.id}-start', entry.id, env, 100_000, {}, seeds=(1,))
    known = {
        **declared_options(EnvironmentOptions),
        **declared_options(NetworkOptions),
        **declared_options(entry.options),
    }
    options = {o: v for o, v in case.options.items() if o not in known or v != known[o].default}
    short = dataclasses.replace(case, options=options)
    return f'```\n{shell(short)}\n```\n\n```python\n{python(short)}\n```'


def shell(case: LearningCase) -> str:
    """Return the command of a case, on several lines if it is long."""
    words = shlex.split(case.command(case.seeds[0]))
    starts = [i for i, word in enumerate(words) if i < 1 or word.startswith('--')]
    parts = [shlex.join(words[a:b]) for a, b in zip(starts, [*starts[1:], None], strict=True)]
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) > WIDTH:
            lines[-1] += ' \\'
            lines.append(f'    {part}')
        else:
            lines[-1] += f' {part}'
    return '\n'.join(lines)


def python(case: LearningCase) -> str:
    """Return the Python code of a case."""
    options = dict(case.options)
    ends = {'target_reward': options.pop('target_reward', None), 'max_steps': case.steps}
    end = ', '.join(f'{name}={value:_}' for name, value in ends.items() if value is not None)
    keywords = [f'{name}={value!r}' for name, value in {**options, 'seed': case.seeds[0]}.items()]
    where = f'dataset={case.dataset!r}' if case.dataset else repr(case.env)
    arguments = [repr(case.agent), where, *keywords]
    call = f'agent = xagents.make({", ".join(arguments)})'
    if len(call) > LINE:
        call = '\n'.join(['agent = xagents.make(', *(f'    {argument},' for argument in arguments), ')'])
    return f'import xagents\n\n{call}\nagent.fit({end})\nagent.evaluate(episodes=20)'


# the options


def groups(entry: Entry) -> Iterator[tuple[str, list[Option]]]:
    """Yield titles and options: the agent's own options, shared options, then options without an effect."""
    known = declared_options(entry.options)
    rest = {name: option for name, option in known.items() if not option.ignored}
    for declaration in entry.options.__mro__:
        names = [name for name in inspect.get_annotations(declaration) if name in rest]
        if names:
            yield title(declaration, entry), [rest.pop(name) for name in names]
    ineffective = [option for option in known.values() if option.ignored]
    if ineffective:
        yield 'Accepted without an effect, with one warning', ineffective


def display_name(entry: Entry) -> str:
    """Return the name of an agent on pages."""
    return entry.class_name.replace('TD3BC', 'TD3+BC')


def title(declaration: type, entry: Entry) -> str:
    """Return the title of the options of one dataclass on an agent's page."""
    if declaration is entry.options:
        return f'{display_name(entry)} itself'
    owner = next((display_name(other) for other in BUILTIN_AGENTS.values() if other.options is declaration), None)
    if owner:
        return f'Also in {owner}'
    sharing = [display_name(other) for other in BUILTIN_AGENTS.values() if issubclass(other.options, declaration)]
    if declaration is AgentOptions:
        return 'Every agent'
    return (
        f'Shared by {", ".join(sharing[:-1])} and {sharing[-1]}' if len(sharing) > 1 else f'As {declaration.__name__}'
    )


def table(options: Sequence[Option]) -> str:
    """Return options as a Markdown table."""
    rows = [('option', 'default', 'accepts', 'effect', 'tuned as'), ('---',) * 5]
    for option in options:
        default = format_default(option)
        shown = '' if default == '-' else f'`{default}`'
        admits = 'a switch' if option.type is bool else 'a path' if option.metavar == 'CFG' else option.expected
        rows.append((', '.join(f'`{flag}`' for flag in option.flags), shown, admits, option.help, option.tune or ''))
    return '\n'.join(f'| {" | ".join(cell.replace("|", "&#124;") for cell in row)} |' for row in rows)


# the scores


def unmeasured(entry: Entry) -> str:
    """Return the text that replaces missing numbers; for offline agents, a link to their results."""
    case = CASES.get(entry.id)
    if isinstance(case, LearningCase) and case.dataset:
        return 'Comparison with d3rlpy on the same data: [Offline learning](../benchmarks.md#offline-learning).'
    return 'Nothing has been measured yet.'


def scores(entry: Entry, benchmarks: str) -> str:
    """Return the rows of an agent in the learning benchmark."""
    lines = tables.sections(benchmarks).get('learning', '').splitlines()
    heading = [line for line in lines if line.startswith('|')][:2]
    rows = [line for line in lines if line.startswith(f'| {entry.id.upper()} |')]
    if not rows:
        return unmeasured(entry)
    shown = explained_columns([*heading, *rows])
    meanings = [row for row in column_meanings(benchmarks) if f'| {row[0]} |' in shown]
    more = (
        f'`xagents presets {entry.id}` gives the source of the settings. A row *published* has those of the source, if '
        'the row without this word has others. [The benchmarks](../benchmarks.md#learning-results) list the command of '
        'each row.'
    )
    parts = [shown, tables.markdown(['column', 'meaning'], meanings), more]
    if below := [line for line in lines if line.startswith(f'* {entry.id.upper()}, ')]:
        parts += [
            'Rows far below the published score, and [how they are compared](../benchmarks.md#learning-results):',
            '\n'.join(below),
        ]
    return '\n\n'.join(parts)


def column_meanings(benchmarks: str) -> list[list[str]]:
    """Return the names and meanings of the columns of scores, as the page of benchmarks gives them.

    Raises:
        ValueError: if the page has no table with the heading `MEANINGS`.
    """
    table = benchmarks.partition(f'{MEANINGS}\n|---|---|\n')[2].partition('\n\n')[0]
    if not table:
        raise ValueError(f'the page of benchmarks lacks the table with the heading {MEANINGS}')
    return [line.strip('| ').split(' | ') for line in table.splitlines()]


def explained_columns(lines: Sequence[str], without: str | None = None) -> str:
    """Return a table with the headings of `HEADINGS`, without empty columns and the column of a name."""
    heading, _, *rows = [[cell.strip() for cell in line.strip('|').split('|')] for line in lines]
    columns = [i for i, name in enumerate(heading) if name != without and (not name or any(row[i] for row in rows))]
    return tables.markdown(
        [HEADINGS.get(heading[i], heading[i]) for i in columns], [[row[i] for i in columns] for row in rows]
    )


def speed(entry: Entry, benchmarks: str) -> str:
    """Return the tables of an agent in the speed benchmark, each with its title, from the last machine."""
    found = []
    others = tuple(f'{id}-' for id in BUILTIN_AGENTS if id.startswith(f'{entry.id}-'))  # td3-bc is not td3
    for name, section in tables.sections(benchmarks).items():
        measured = list(tables.by_machine(section).items())
        if name.startswith(f'{entry.id}-') and measured and not (others and name.startswith(others)):
            machine, text = measured[0]
            title = section.partition('\n')[0].removeprefix('### ')
            rows = [line for line in text.splitlines() if line.startswith('|')]
            date = summary.DATE.search(text)
            measured_on = f'{machine}, {date[1]}' if date else machine
            found.append(f'{title} ({measured_on}):\n\n{explained_columns(rows, without="required")}')
    if any('relative to' in text for text in found):
        found.append(SPEED_NOTE)
    return '\n\n'.join(found) or unmeasured(entry)


# the links


def with_lines(text: str, folder: Path = PAGES) -> str:
    """Return a page with updated line numbers in its links to code.

    Args:
        text: text of the page.
        folder: folder of the page, to which its links are relative.

    Raises:
        ValueError: if the linked file does not define the linked name.
    """
    return LINK.sub(lambda link: f'[`{link["name"]}`]({link["path"]}#L{line_of(link, folder)})', text)


def line_of(link: re.Match, folder: Path = PAGES) -> int:
    """Return the line on which the name of a link is defined.

    Raises:
        ValueError: if the linked file does not define the name.
    """
    path = (folder / link['path']).resolve()
    lines = definitions(path) if path.exists() else {}
    if link['name'] not in lines:
        raise ValueError(f'{link["name"]} is not defined in {link["path"]}')
    return lines[link['name']]


@functools.cache
def definitions(path: Path) -> dict[str, int]:
    """Return the line numbers of all classes and functions of a file, by qualified name."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                yield prefix + child.name, child.lineno
                yield from walk(child, f'{prefix}{child.name}.')

    return dict(walk(ast.parse(path.read_text()), ''))


if __name__ == '__main__':
    if len(sys.argv) == 3:
        write_page(find_agent(sys.argv[1]), Path(sys.argv[2]))
    else:
        write_all()
        write_readme()
