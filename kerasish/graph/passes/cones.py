"""How a few cheap ops compute a value that a loop writes, from values in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kerasish.graph.fused import Dims, FusedBody
from kerasish.graph.ir import Graph, Node, Value
from kerasish.ops import dtypes

MOST_OPS = 8  # ops that compute one value


class Cone(NamedTuple):
    """How a value is computed from values in memory.

    Attributes:
        numbers: the indices of the nodes in the body of the loop that writes the value.
        leaves: the values in memory that they read -> the dims of these reads.
    """

    numbers: tuple[int, ...]
    leaves: dict[Value, Dims]


def is_loop(node: Node) -> bool:
    """Return whether a node is a loop of fused ops."""
    return node.op.name == "fused" and isinstance(node.attrs.get("body"), FusedBody)


def all_axes(body: FusedBody) -> Dims:
    """Return the dims of a value with an element per element of a loop's frame."""
    return tuple(None if size == 1 else axis for axis, size in enumerate(body.frame))


def covers(body: FusedBody, v: Value) -> bool:
    """Return whether a loop computes an element of a value per element of its frame."""
    return body.dims[v] == all_axes(body) and v.shape == body.frame


def cone_of(body: FusedBody, v: Value, stored: set[Value], slow: int) -> Cone | None:
    """Return how cheap ops compute a value; None if it needs other ops, or too many.

    Args:
        body: of the loop that writes the value.
        v: the value.
        stored: the results of the loop that are in memory.
        slow: the number of slower ops that are allowed.
    """
    makers = {node.out: number for number, node in enumerate(body.graph.nodes)}
    whole = body.dims[v]
    numbers: set[int] = set()
    leaves: dict[Value, Dims] = {}
    stack = [makers[v]]
    while stack:
        number = stack.pop()
        if number in numbers:
            continue
        numbers.add(number)
        node = body.graph.nodes[number]
        if not node.op.cheap:
            slow -= 1
            if slow < 0 or not node.op.cheaper_than_memory:
                return None
        in_place = body.dims[node.out] == whole and node.out.shape == v.shape
        if not in_place or len(numbers) > MOST_OPS:
            return None
        for i, x in enumerate(node.inputs):
            dims = body.reads[number, i]
            if x in makers and x not in stored:
                stack.append(makers[x])
            elif leaves.setdefault(x, dims) != dims:
                return None
    return Cone(tuple(sorted(numbers)), leaves)


def copied(
    body: FusedBody, numbers: Sequence[int]
) -> tuple[dict[Value, Value], list[Node], dict[Value, Dims], dict[tuple[int, int], Dims]]:
    """Return copies of some nodes of a loop's body, which compute new values.

    Args:
        body: of the loop.
        numbers: the indices of the nodes, in order.

    Returns:
        Old value -> new value, the nodes, the dims of their results and of their reads.
    """
    new: dict[Value, Value] = {}
    nodes: list[Node] = []
    dims: dict[Value, Dims] = {}
    reads: dict[tuple[int, int], Dims] = {}
    for number in numbers:
        old = body.graph.nodes[number]
        inputs = [new.get(v, v) for v in old.inputs]
        reads.update({(len(nodes), i): body.reads[number, i] for i in range(len(inputs))})
        new[old.out] = Value(*old.out.spec)
        dims[new[old.out]] = body.dims[old.out]
        nodes.append(Node(old.op, inputs, old.attrs, [new[old.out]]))
    return new, nodes, dims, reads


def body_of(
    old: FusedBody, nodes: list[Node], dims: dict[Value, Dims],
    reads: dict[tuple[int, int], Dims], outputs: Iterable[Value],
) -> FusedBody:  # fmt: skip
    """Return a loop's body with other nodes.

    Args:
        old: the loop, whose frame stays.
        nodes: of the body, in order.
        dims, reads: see `FusedBody`.
        outputs: the results in memory.
    """
    computed = {node.out for node in nodes}
    inputs = dict.fromkeys(v for node in nodes for v in node.inputs if v not in computed)
    return FusedBody(
        Graph(inputs, {}, nodes, outputs), old.frame, old.split, old.groups, dims, reads
    )


def nbytes(v: Value) -> int:
    """Return the bytes of a value in memory."""
    return v.size * dtypes.array_dtype(v.dtype).itemsize
