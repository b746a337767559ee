"""Nested structures of lists, tuples, named tuples and dicts: flatten, map, pack.

Dicts are walked in the order of their sorted keys, as Keras does; None is a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

_SEQUENCES = (list, tuple)


def _is_namedtuple(x: Any) -> bool:
    return isinstance(x, tuple) and hasattr(x, "_fields")


def is_nested(structure: Any) -> bool:
    """Return whether `structure` is a list, tuple or dict.

    Example:
        >>> is_nested([1]), is_nested({}), is_nested("ab")
        (True, True, False)
    """
    return isinstance(structure, (list, tuple, dict, Mapping))


def _children(structure: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(structure, Mapping):
        try:
            keys = sorted(structure)
        except TypeError:
            keys = list(structure)
        return ((key, structure[key]) for key in keys)
    return enumerate(structure)


def _rebuild(like: Any, pairs: list[tuple[Any, Any]]) -> Any:
    if isinstance(like, Mapping):
        values = dict(pairs)
        result = {key: values[key] for key in like}
        return result if type(like) is dict else type(like)(result)  # type: ignore[call-arg]
    values_only = [value for _, value in pairs]
    if _is_namedtuple(like):
        return type(like)(*values_only)
    return values_only if isinstance(like, list) else tuple(values_only)


def flatten(structure: Any) -> list[Any]:
    """Return the leaves of `structure` as a list.

    Example:
        >>> flatten({"b": [1, (2, None)], "a": 0})
        [0, 1, 2, None]
    """
    plain = type(structure) is tuple or type(structure) is list
    if plain and not any(isinstance(child, (list, tuple, Mapping)) for child in structure):
        return list(structure)
    if not is_nested(structure):
        return [structure]
    leaves: list[Any] = []
    for _, child in _children(structure):
        leaves.extend(flatten(child))
    return leaves


def flatten_with_path(structure: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """Return (path, leaf) pairs, a path being the tuple of keys and indices to the leaf.

    Example:
        >>> flatten_with_path({"a": [1, 2]})
        [(('a', 0), 1), (('a', 1), 2)]
    """
    if not is_nested(structure):
        return [((), structure)]
    return [
        ((key, *path), leaf)
        for key, child in _children(structure)
        for path, leaf in flatten_with_path(child)
    ]


def map_structure(func: Callable[..., Any], *structures: Any, none_is_leaf: bool = True) -> Any:
    """Return the structure of `func(leaf, ...)` over the leaves of equally built structures.

    Example:
        >>> map_structure(lambda a, b: a + b, {"x": [1, 2]}, {"x": [10, 20]})
        {'x': [11, 22]}
    """
    if not structures:
        raise ValueError("map_structure: expected at least one structure, got none.")
    first = structures[0]
    if not is_nested(first):
        if first is None and not none_is_leaf:
            return None
        return func(*structures)
    for other in structures[1:]:
        _assert_same_node(first, other, ())
    children = [list(_children(s)) for s in structures]
    pairs = [
        (group[0][0], map_structure(func, *(c for _, c in group), none_is_leaf=none_is_leaf))
        for group in zip(*children)
    ]
    return _rebuild(first, pairs)


def map_structure_up_to(shallow_structure: Any, func: Callable[..., Any], *structures: Any) -> Any:
    """Return the structure of `func` over the parts of `structures` at the shallow one's leaves.

    Example:
        >>> map_structure_up_to([0, 0], len, [[1, 2], [3]])
        [2, 1]
    """
    if not is_nested(shallow_structure):
        return func(*structures)
    for other in structures:
        _assert_same_node(shallow_structure, other, ())
    keys = list(_children(shallow_structure))
    columns = [list(_children(s)) for s in structures]
    pairs = [
        (key, map_structure_up_to(part, func, *(column[i][1] for column in columns)))
        for i, (key, part) in enumerate(keys)
    ]
    return _rebuild(shallow_structure, pairs)


def pack_sequence_as(structure: Any, flat_sequence: Any) -> Any:
    """Return the leaves `flat_sequence` arranged as `structure`.

    Raises:
        ValueError: the number of leaves differs.

    Example:
        >>> pack_sequence_as({"a": 0, "b": (0, 0)}, [1, 2, 3])
        {'a': 1, 'b': (2, 3)}
    """
    leaves = list(flat_sequence)
    count = len(flatten(structure))
    if count != len(leaves):
        raise ValueError(
            f"pack_sequence_as: the structure has {count} leaves, the sequence {len(leaves)}."
        )
    rest = iter(leaves)
    return map_structure(lambda _: next(rest), structure)


def traverse(func: Callable[[Any], Any], structure: Any, top_down: bool = True) -> Any:
    """Return `structure` with each node replaced by what `func` returns (None: keep and go on).

    A returned `MAP_TO_NONE` stands for None.

    Example:
        >>> traverse(lambda x: tuple(x) if isinstance(x, list) else None, [1, [2]], top_down=False)
        (1, (2,))
    """
    if top_down:
        replaced = func(structure)
        if replaced is not None:
            return None if replaced is MAP_TO_NONE else replaced
    if is_nested(structure):
        pairs = [(key, traverse(func, child, top_down)) for key, child in _children(structure)]
        structure = _rebuild(structure, pairs)
    if top_down:
        return structure
    replaced = func(structure)
    if replaced is None:
        return structure
    return None if replaced is MAP_TO_NONE else replaced


class MAP_TO_NONE:  # noqa: N801 (Keras's name)
    """What a function given to `traverse` returns to put None in a node's place."""


def lists_to_tuples(structure: Any) -> Any:
    """Return `structure` with every list made a tuple.

    Example:
        >>> lists_to_tuples([1, [2, {"a": [3]}]])
        (1, (2, {'a': (3,)}))
    """
    return traverse(lambda x: tuple(x) if type(x) is list else None, structure, top_down=False)


def map_shape_structure(func: Callable[[Any], Any], structure: Any) -> Any:
    """Return the structure of `func(shape)`, where tuples or lists of sizes count as leaves.

    Example:
        >>> map_shape_structure(len, {"a": (None, 3), "b": [(1,), (2, 2)]})
        {'a': 2, 'b': [1, 2]}
    """
    if is_shape(structure):
        return func(tuple(structure))
    if not is_nested(structure):
        raise ValueError(f"map_shape_structure: expected shapes, got {structure!r}.")
    return _rebuild(structure, [(k, map_shape_structure(func, c)) for k, c in _children(structure)])


def is_shape(x: Any) -> bool:
    """Return whether `x` is a tuple or list of sizes (integers or None)."""
    return isinstance(x, _SEQUENCES) and all(
        s is None or (isinstance(s, int) and not isinstance(s, bool)) or _is_integer(s) for s in x
    )


def _is_integer(x: Any) -> bool:
    return hasattr(x, "__index__") and not hasattr(x, "__len__") and not hasattr(x, "__array__")


def assert_same_structure(a: Any, b: Any, check_types: Any = None) -> None:
    """Raise ValueError unless `a` and `b` are built alike, naming the place where they differ."""
    _assert_same(a, b, ())


def assert_same_paths(a: Any, b: Any) -> None:
    """Raise ValueError unless the leaves of `a` and `b` have the same paths."""
    left, right = ([path for path, _ in flatten_with_path(s)] for s in (a, b))
    if left != right:
        odd = sorted(map(str, set(left) ^ set(right)))
        raise ValueError(f"The structures differ at the paths {odd}.")


def _assert_same(a: Any, b: Any, path: tuple[Any, ...]) -> None:
    if not is_nested(a) and not is_nested(b):
        return
    _assert_same_node(a, b, path)
    for (key, left), (_, right) in zip(_children(a), _children(b)):
        _assert_same(left, right, (*path, key))


def _assert_same_node(a: Any, b: Any, path: tuple[Any, ...]) -> None:
    where = f" at {'/'.join(map(str, path))}" if path else ""
    both_maps = isinstance(a, Mapping) and isinstance(b, Mapping)
    both_sequences = isinstance(a, _SEQUENCES) and isinstance(b, _SEQUENCES)
    if not (both_maps or both_sequences):
        raise ValueError(
            f"The structures differ{where}: a {type(a).__name__} beside a {type(b).__name__}."
        )
    if both_maps and set(a) != set(b):
        raise ValueError(f"The structures differ{where}: keys {sorted(a)} beside {sorted(b)}.")
    if len(a) != len(b):
        raise ValueError(f"The structures differ{where}: {len(a)} parts beside {len(b)}.")
