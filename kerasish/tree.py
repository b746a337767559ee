"""Nested structures of lists, tuples, named tuples and dicts: flatten, map, pack.

Dicts are walked in the order of their sorted keys, an OrderedDict in its own order, as Keras does;
None is a leaf.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kerasish.reprs import arguments_repr
from kerasish.typing import Shape, Structure

if TYPE_CHECKING:
    from kerasish.engine.functional.host_stage import HostInputs


_SEQUENCES = (list, tuple, deque)
_NESTED = (dict, *_SEQUENCES, Mapping)


def is_namedtuple(x: Any) -> bool:
    """Return whether x is a tuple with named fields."""
    return isinstance(x, tuple) and hasattr(x, "_fields")


def is_nested(structure: Structure) -> bool:
    """Return whether `structure` is a list, tuple, deque or dict.

    Args:
        structure: nested lists, tuples, named tuples and dicts.

    Example:
        >>> is_nested([1]), is_nested({}), is_nested("ab")
        (True, True, False)
    """
    return isinstance(structure, _NESTED)


def _children(structure: Structure) -> Iterator[tuple[Any, Any]]:
    if isinstance(structure, Mapping):
        keys = list(structure)
        if not isinstance(structure, OrderedDict):
            try:
                keys.sort()
            except TypeError:  # keys of several types keep their order
                keys = list(structure)
        return ((key, structure[key]) for key in keys)
    return enumerate(structure)


def _rebuild(
    like: HostInputs | dict[str, Any] | Sequence[Any], pairs: list[tuple[Any, Any]]
) -> HostInputs | dict[str, Any] | Sequence[Any]:
    if isinstance(like, Mapping):
        values = dict(pairs)
        result = {key: values[key] for key in like}
        if isinstance(like, defaultdict):
            return type(like)(like.default_factory, result)
        return result if type(like) is dict else type(like)(result)
    values_only = [value for _, value in pairs]
    if is_namedtuple(like):
        return type(like)(*values_only)
    if isinstance(like, deque):
        return type(like)(values_only, like.maxlen)
    return values_only if isinstance(like, list) else tuple(values_only)


def flatten(structure: Structure) -> list[Any]:
    """Return the leaves of `structure` as a list.

    Args:
        structure: nested lists, tuples, named tuples and dicts.

    Example:
        >>> flatten({"b": [1, (2, None)], "a": 0})
        [0, 1, 2, None]
    """
    plain = type(structure) is tuple or type(structure) is list
    if plain and not any(isinstance(child, (*_SEQUENCES, Mapping)) for child in structure):
        return list(structure)
    if not is_nested(structure):
        return [structure]
    leaves: list[Any] = []
    for _, child in _children(structure):
        leaves.extend(flatten(child))
    return leaves


def flatten_with_path(structure: Structure) -> list[tuple[tuple[Any, ...], Any]]:
    """Return (path, leaf) pairs, a path being the tuple of keys and indices to the leaf.

    Args:
        structure: nested lists, tuples, named tuples and dicts.

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


def map_structure(
    func: Callable[..., Any], *structures: Any, none_is_leaf: bool = True
) -> Structure:
    """Return the structure of `func(leaf, ...)` over the leaves of equally built structures.

    Args:
        func: function of a leaf, or of one leaf from each structure.
        *structures: structures that are built alike.
        none_is_leaf: whether None is a leaf, or an empty node.

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
    pairs = [
        (key, map_structure(func, *parts, none_is_leaf=none_is_leaf))
        for key, *parts in _side_by_side(structures)
    ]
    return _rebuild(first, pairs)


def map_plain(func: Callable[[Any], Any], structure: Structure) -> Structure:
    """Return dicts, lists and tuples with `func(x)` in place of everything else in them.

    Other containers, named tuples for example, are given to `func` as they are.

    Args:
        func: a function of one value.
        structure: nested dicts, lists and tuples.

    Example:
        >>> map_plain(lambda x: x * 2, {"a": [1, (2, 3)]})
        {'a': [2, (4, 6)]}
    """
    if isinstance(structure, dict):
        return {k: map_plain(func, v) for k, v in structure.items()}
    if type(structure) in (list, tuple):
        return type(structure)(map_plain(func, v) for v in structure)
    return func(structure)


def _side_by_side(structures: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Return (key, child of each structure) by the keys of the first one, in its order."""
    first, *others = structures
    if isinstance(first, Mapping):
        return ((key, child, *(o[key] for o in others)) for key, child in _children(first))
    return ((i, *parts) for i, parts in enumerate(zip(*structures)))


def map_structure_up_to(
    shallow_structure: Structure, func: Callable[..., Any], *structures: Any
) -> dict[str, Any] | str | int | Sequence[Any]:
    """Return the structure of `func` over the parts of `structures` at the shallow leaves.

    Args:
        shallow_structure: the structure that decides what a leaf is.
        func: function of a leaf, or of one leaf from each structure.
        *structures: structures that are built alike.

    Example:
        >>> map_structure_up_to([0, 0], len, [[1, 2], [3]])
        [2, 1]
    """
    if not is_nested(shallow_structure):
        return func(*structures)
    for other in structures:
        _assert_same_node(shallow_structure, other, ())
    pairs = [
        (key, map_structure_up_to(part, func, *parts))
        for key, part, *parts in _side_by_side((shallow_structure, *structures))
    ]
    return _rebuild(shallow_structure, pairs)


def pack_sequence_as(structure: Structure, flat_sequence: Sequence[Any]) -> Structure:
    """Return the leaves `flat_sequence` arranged as `structure`.

    Args:
        structure: nested lists, tuples, named tuples and dicts.
        flat_sequence: the leaves in order.

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


def traverse(
    func: Callable[[Any], Any], structure: Structure, top_down: bool = True
) -> Structure | None:
    """Return `structure` with each node replaced by what `func` returns (None: keep and continue).

    A returned `MAP_TO_NONE` means None.

    Args:
        func: function of a node.
        structure: nested lists, tuples, named tuples and dicts.
        top_down: whether a node precedes its parts.

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
    """What a function given to `traverse` returns to put None in a node's place.

    Example:
        >>> traverse(lambda node: MAP_TO_NONE if node == 1 else None, [1, 2])
        [None, 2]
    """

    __repr__ = arguments_repr


def lists_to_tuples(structure: Structure) -> Structure:
    """Return `structure` with every list made a tuple.

    Args:
        structure: nested lists, tuples, named tuples and dicts.

    Example:
        >>> lists_to_tuples([1, [2, {"a": [3]}]])
        (1, (2, {'a': (3,)}))
    """
    return traverse(lambda x: tuple(x) if type(x) is list else None, structure, top_down=False)


def map_shape_structure(func: Callable[[Any], Any], structure: Structure) -> Structure:
    """Return the structure of `func(shape)`, where tuples or lists of sizes count as leaves.

    Args:
        func: function of a shape.
        structure: nested lists, tuples, named tuples and dicts.

    Example:
        >>> map_shape_structure(len, {"a": (None, 3), "b": [(1,), (2, 2)]})
        {'a': 2, 'b': [1, 2]}
    """
    if is_shape(structure):
        return func(tuple(structure))
    if not is_nested(structure):
        raise ValueError(f"map_shape_structure: expected shapes, got {structure!r}.")
    return _rebuild(structure, [(k, map_shape_structure(func, c)) for k, c in _children(structure)])


def is_shape(x: dict[str, Any] | str | Sequence[Any]) -> bool:
    """Return whether `x` is a tuple or list of sizes (integers or None)."""
    return isinstance(x, (list, tuple)) and all(
        s is None or (isinstance(s, int) and not isinstance(s, bool)) or _is_integer(s) for s in x
    )


def _is_integer(x: Shape) -> bool:
    return hasattr(x, "__index__") and not hasattr(x, "__len__") and not hasattr(x, "__array__")


def assert_same_structure(a: Structure, b: Structure, check_types: bool | None = None) -> None:
    """Raise ValueError unless `a` and `b` are built alike, naming the place where they differ.

    Dicts of any kind are alike; a list, a tuple, a deque and a named tuple are not.

    Args:
        a: a structure.
        b: another structure.
        check_types: whether lists and tuples differ; None: yes.

    Example:
        >>> assert_same_structure([1, {"a": 2}], [3, {"a": 4}])
        >>> assert_same_structure([1, (2,)], [3, [4]])
        Traceback (most recent call last):
        ...
        ValueError: The structures differ at 1: a tuple and a list.
    """
    _assert_same(a, b, ())


def assert_same_paths(
    a: dict[str, Any] | str | int | Sequence[Any], b: dict[str, Any] | str | int | Sequence[Any]
) -> None:
    """Raise ValueError unless the leaves of `a` and `b` have the same paths.

    Args:
        a: a structure.
        b: another structure.

    Example:
        >>> assert_same_paths({"a": 1}, {"a": 2})
    """
    left, right = ({path for path, _ in flatten_with_path(s)} for s in (a, b))
    if left != right:
        odd = sorted(map(str, left ^ right))
        raise ValueError(f"The structures differ at the paths {odd}.")


def _assert_same(a: Structure, b: Structure, path: tuple[Any, ...]) -> None:
    if not is_nested(a) and not is_nested(b):
        return
    _assert_same_node(a, b, path, strict=True)
    for key, left, right in _side_by_side((a, b)):
        _assert_same(left, right, (*path, key))


def _assert_same_node(
    a: Structure, b: dict[str, Any] | Sequence[Any], path: tuple[Any, ...], strict: bool = False
) -> None:
    where = f" at {'/'.join(map(str, path))}" if path else ""
    both_maps = isinstance(a, Mapping) and isinstance(b, Mapping)
    both_sequences = isinstance(a, _SEQUENCES) and isinstance(b, _SEQUENCES)
    if not (both_maps or both_sequences and (type(a) is type(b) or not strict)):
        raise ValueError(
            f"The structures differ{where}: a {type(a).__name__} and a {type(b).__name__}."
        )
    if both_maps and set(a) != set(b):
        raise ValueError(f"The structures differ{where}: keys {sorted(a)} and {sorted(b)}.")
    if len(a) != len(b):
        raise ValueError(f"The structures differ{where}: {len(a)} parts and {len(b)}.")
