"""Nested values of composite spaces: dicts and tuples with arrays as leaves.

The parts of a Dict are sorted by key: Gymnasium regards Dict spaces as equal if only the order of their keys differs,
and data sets store sorted keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from xagents.options.errors import one_line


def parts_of(space: Any) -> list[tuple[Any, spaces.Space]]:
    """Return the parts of a Dict, sorted by key, or of a Tuple, with their keys or indices."""
    if isinstance(space, spaces.Dict):
        return sorted(space.spaces.items(), key=lambda part: str(part[0]))
    return list(enumerate(space.spaces))


def map_tree(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree with a function applied to each leaf."""
    if isinstance(tree, dict):
        return {key: map_tree(function, part) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_tree(function, part) for part in tree)
    return function(tree)


def tree_leaves(tree: Any) -> Iterator[Any]:
    """Yield the leaves of a tree, depth first."""
    if isinstance(tree, dict | tuple):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from tree_leaves(part)
    else:
        yield tree


def stack_trees(trees: Sequence[Any]) -> Any:
    """Stack trees of equal structure into one tree. Each leaf gets a new first axis with one entry for each tree."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: stack_trees([tree[key] for tree in trees]) for key in first}
    if isinstance(first, tuple):
        return tuple(stack_trees(parts) for parts in zip(*trees, strict=True))
    return np.stack(trees)


def space_leaves(space: spaces.Space, tree: Any, name: str = '') -> Iterator[tuple[str, spaces.Space, Any]]:
    """Yield the name, the space and the value of each leaf of a nested value.

    Args:
        space: the space of the value.
        tree: the value.
        name: the first part of the names.

    Raises:
        ValueError: if a part of the value is missing.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in parts_of(space):
            try:
                value = tree[key]
            except (KeyError, IndexError, TypeError):
                raise ValueError(f'{name}: expected a part {key!r}') from None
            yield from space_leaves(part, value, f'{name}[{key!r}]')
    else:
        yield name, space, tree


def leaf_spaces(space: spaces.Space) -> list[tuple[tuple[Any, ...], spaces.Space]]:
    """Return the path of keys and indices, and the space, of each leaf of a space, depth first."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return [((), space)]
    return [((key, *path), leaf) for key, part in parts_of(space) for path, leaf in leaf_spaces(part)]


def tree_of(space: spaces.Space, leaves: Iterator[Any]) -> Any:
    """Return leaves, in the order of `leaf_spaces`, as dicts and tuples of a space."""
    if isinstance(space, spaces.Dict):
        return {key: tree_of(part, leaves) for key, part in parts_of(space)}
    if isinstance(space, spaces.Tuple):
        return tuple(tree_of(part, leaves) for part in space.spaces)
    return next(leaves)


def leaf_at(tree: Any, path: Sequence[Any]) -> Any:
    """Return the leaf of a tree at a path of keys and indices."""
    for key in path:
        tree = tree[key]
    return tree


def check_values(what: str, space: spaces.Space, tree: Any, length: int) -> None:
    """Check that a nested value is a stack of finite elements of a space. The bounds of Box spaces are not checked.

    Args:
        what: the name of the value in messages.
        space: the space of one element.
        tree: the value, whose leaves have the shape [length, …].
        length: the number of elements.

    Raises:
        ValueError: in one line that starts with `what`.
    """
    for name, leaf, value in space_leaves(space, tree, what):
        array = np.asarray(value)
        if array.shape != (length, *(leaf.shape or ())):
            raise ValueError(f'{name}: got the shape {array.shape}, expected {(length, *(leaf.shape or ()))}')
        if array.dtype.kind not in 'biuf' or (array.dtype.kind == 'f' and not np.isfinite(array).all()):
            raise ValueError(f'{name}: expected finite numbers')
        if isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            low, high = _bounds(leaf)
            if (array < low).any() or (array > high).any():
                raise ValueError(f'{name}: expected values in {one_line(leaf)}')


def _bounds(space: Any) -> tuple[Any, Any]:
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return 0, 1
