"""The structure of a graph as a hashable key: equal for graphs that compute the same."""

from __future__ import annotations

import hashlib
import marshal
from typing import Any

import numpy as np

from kerasish.graph.ir import Graph, Node, Value
from kerasish.ops.op import REGISTRY

LARGE = 1 << 16  # bytes of a constant that is not compared


class Incomparable(Exception):  # noqa: N818 (a signal)
    """A graph holds something whose equality cannot be decided."""


def structure_of(graph: Graph) -> tuple[Any, ...] | None:
    """Return a hashable key that is equal for graphs with the same computation, else unequal.

    None if an attribute is not hashable, or if constants are too large to compare.
    """
    try:
        result = _structure(graph)
        hash(result)
    except (Incomparable, TypeError):
        return None
    return result


def attributes_key(node: Node) -> tuple[Any, ...]:
    """Return a key that is equal for equal attributes only.

    1, 1.0 and True compare equal but are different attributes, and so are 0.0 and -0.0.

    Raises:
        Incomparable: a graph inside holds something whose equality cannot be decided.
    """
    if not node.attrs:
        return ()
    return tuple([(name, _key(value)) for name, value in sorted(node.attrs.items())])


# The types of attributes whose values `marshal` writes in one way, by their names in keys.
_PLAIN: dict[type, str] = {t: t.__name__ for t in (type(None), bool, int, str, bytes)}


def digest_of(structure: Any) -> str | None:
    """Return a hash of a structure that is the same in each process.

    None if it holds something that is known only in this process: a function, an op of the user, an
    object without a fixed form. `marshal` refuses these.
    """
    try:
        # Version 2 writes equal values alike; later ones write a second reference differently.
        return hashlib.sha256(marshal.dumps(structure, 2)).hexdigest()
    except ValueError:
        return None


def _op_key(op: Any) -> object:
    """Return the name of an op of ours, or the op."""
    own = REGISTRY.get(op.name) is op and op.__module__.startswith("kerasish.")
    return op.name if own else op


def _key(value: object) -> tuple[Any, ...]:
    kind = _PLAIN.get(type(value))
    if kind is not None:
        return kind, value
    if type(value) is float:
        return "float", value.hex()
    if isinstance(value, Graph):
        return "graph", _structure(value)
    if isinstance(value, tuple):
        return "tuple" if type(value) is tuple else type(value), tuple([_key(v) for v in value])
    return type(value), value


def _structure(graph: Graph) -> tuple[Any, ...]:
    numbers: dict[Value, int] = {}

    def number(v: Value) -> int:
        return numbers.setdefault(v, len(numbers))

    constants = []
    inputs = tuple([(number(v), v.shape, v.dtype) for v in graph.inputs])
    for v, array in graph.constants.items():
        array = np.asarray(array)
        if array.nbytes > LARGE:
            raise Incomparable
        constants.append((number(v), v.shape, v.dtype, array.tobytes()))
    nodes = []
    for node in graph.nodes:
        nodes.append((
            _op_key(node.op), tuple([number(v) for v in node.inputs]), attributes_key(node),
            tuple([(number(v), v.shape, v.dtype) for v in node.outputs]),
        ))  # fmt: skip
    return inputs, tuple(constants), tuple(nodes), tuple([number(v) for v in graph.outputs])


def computes_same(a: Graph, b: Graph) -> bool:
    """Return whether two graphs compute the same by the same ops, in any order.

    Nodes that no output needs are ignored. The result is False if this cannot be decided.
    """
    known: dict[Any, int] = {}
    try:
        return _numbers(a, known) == _numbers(b, known)
    except (Incomparable, TypeError):
        return False


def _numbers(graph: Graph, known: dict[Any, int]) -> list[int]:
    """Return a number for each output, equal for equal computations that share `known`."""
    numbers: dict[Value, int] = {}

    def enter(v: Value, key: tuple[Any, ...]) -> None:
        numbers[v] = known.setdefault((*key, v.shape, v.dtype), len(known))

    for place, v in enumerate(graph.inputs):
        enter(v, ("input", place))
    for v, array in graph.constants.items():
        enter(v, ("constant", np.asarray(array).tobytes()))
    for node in graph.nodes:
        inside = tuple([numbers[v] for v in node.inputs])
        for place, v in enumerate(node.outputs):
            enter(v, (node.op, inside, attributes_key(node), place))
    return [numbers[v] for v in graph.outputs]
