"""Check names and words: `python tests/lint_names.py` from the root of the repository; one line a finding.

Class names are unique in the package, public functions in a package directory; words that mislead stand nowhere; no
package directory has more than `MAX_FILES` modules.
"""

from __future__ import annotations

import ast
import collections
import glob
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_FILES = 20
ANYWHERE = {
    *('witness', 'beside', 'alike', 'standing', 'told', 'fleet', 'staff', 'crew', 'house', 'room', 'floor', 'door'),
    *('witnesses', 'fleets', 'crews', 'houses', 'rooms', 'floors', 'doors'),
}
AS_NAMES = {'again', 'alone', 'face'}
# names from libraries, ids of environments, addresses
EXEMPT = re.compile(r'\b(np|numpy|math|tf|ops)\.floor\w*|\bMiniGrid-[\w-]+|\bDoorKey\w*|\bFourRooms\b|https?://\S+')
WORD = re.compile(r'[A-Z]+(?![a-z])|[A-Z]?[a-z]+')
CODE = ('xagents/**/*.py', 'docs/**/*.py')
TEXT = ('xagents/**/*.cfg', 'xagents/**/*.y*ml', 'docs/**/*.md', 'docs/**/*.ipynb', 'docs/**/*.y*ml', 'README.md')


def files(*patterns: str) -> list[str]:
    return sorted(path for pattern in patterns for path in glob.glob(pattern, recursive=True))


def words(text: str) -> set[str]:
    return {word.lower() for word in WORD.findall(text)}


def duplicates(trees: dict[str, ast.Module]) -> Iterator[str]:
    """Yield classes of one name in the package and public functions of one name in a directory."""
    classes, functions = collections.defaultdict(list), collections.defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(f'{path}:{node.lineno}')
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith('_'):
                functions[os.path.dirname(path), node.name].append(f'{path}:{node.lineno}')
    for name, places in classes.items():
        if len(places) > 1:
            yield f'{places[0]}: class {name} is also defined in {", ".join(places[1:])}'
    for (_, name), places in functions.items():
        if len({place.split(':')[0] for place in places}) > 1:
            yield f'{places[0]}: function {name} is also defined in {", ".join(places[1:])}'


def defined_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of what a module defines: functions, classes, parameters, variables, attributes, imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.lineno, node.asname
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.value.lineno, node.arg


def wrong_words(path: str, tree: ast.Module | None) -> Iterator[str]:
    for number, line in enumerate(Path(path).read_text(encoding='utf-8').split('\n'), 1):
        if 'image/png' not in line:  # a notebook's pictures
            for word in sorted(words(EXEMPT.sub('', line)) & ANYWHERE):
                yield f'{path}:{number}: the word {word}: {line.strip()[:100]}'
    if tree is not None:
        stem = os.path.basename(path).removesuffix('.py')
        for number, name in sorted({(1, stem), *defined_names(tree)}):
            for word in sorted(words(name) & AS_NAMES):
                yield f'{path}:{number}: the name {name} has the word {word}'


def large_packages() -> Iterator[str]:
    counts = collections.Counter(map(os.path.dirname, files('xagents/**/*.py')))
    for folder, count in sorted(counts.items()):
        if count > MAX_FILES:
            yield f'{folder}: {count} modules, at most {MAX_FILES}'


def main() -> int:
    trees = {path: ast.parse(Path(path).read_text(encoding='utf-8'), path) for path in files(*CODE)}
    package = {path: tree for path, tree in trees.items() if path.startswith('xagents/')}
    findings = [*duplicates(package), *large_packages()]
    for path in [*trees, *files(*TEXT)]:
        findings += wrong_words(path, trees.get(path))
    print('\n'.join(findings), end='\n' if findings else '')
    return int(bool(findings))


if __name__ == '__main__':
    sys.exit(main())
