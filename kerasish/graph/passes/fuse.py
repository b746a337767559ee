"""Loop fusion: element-wise ops and the reductions they feed become fused nodes, one loop each.

A group has a frame: the shape that its loop runs over, split into row axes and column axes. Every
value in the group varies along some axes of the frame. Its `dims` are, for each axis of the value,
the axis of the frame, or None where it does not vary. A reduction over the column axes yields one
number per row; one over the row axes (or the last of them), one number per column; one over all
axes, a single number. After the latter two, only columns and numbers can follow in the same loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kerasish.graph.fused import Dims, FusedBody, make_fused
from kerasish.graph.ir import Graph, Node, Value
from kerasish.graph.passes.rounds import exchanges_before, in_rounds

_INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool"
DTYPES = frozenset(f"float32 float64 bfloat16 float16 {_INTEGERS}".split())
LARGEST = 60  # nodes in a group; larger loops spill registers and compile slowly


class _FusionGroup:
    """Nodes that may become one loop."""

    def __init__(self, number: int, frame: tuple[int, ...]) -> None:
        self.number, self.frame = number, frame
        self.whole: Dims = tuple([None if s == 1 else i for i, s in enumerate(frame)])
        self.split: int | None = None
        self.groups = 0
        self.nodes: list[int] = []
        self.dims: dict[Value, Dims] = {}
        self.after: set[Value] = set()
        self.reads: dict[tuple[int, int], Dims] = {}
        self.uniform: set[Value] = set()


def _align(shape: Sequence[int], dims: Dims, target: Sequence[int]) -> list[Any] | None:
    """Return, for each axis of `target`, the frame axis along which the value varies there."""
    results: list[Any] = [None] * len(target)
    lead = len(target) - len(shape)
    if lead < 0:
        return None
    for i, d in enumerate(dims):
        if d is not None:
            results[i + lead] = d
    return results


def _read_dims(value: Value, target: Sequence[int], dims: Dims) -> Dims:
    """Return the dims of a value from outside that is combined with a result of these dims."""
    lead = len(target) - len(value.shape)
    return tuple(None if s == 1 else dims[i + lead] for i, s in enumerate(value.shape))


class _Fuser:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.before = exchanges_before(graph)
        self.group_of: dict[Value, int] = {}  # value -> the unit that computes it
        self.groups: dict[int, _FusionGroup] = {}  # the units that are loops
        self.members: dict[int, list[int]] = {}  # unit -> indices of its nodes
        self.deps: dict[int, int] = {}  # unit -> bit set of all units that it depends on
        self.users: dict[int, set[int]] = {}  # unit -> the units that read its values
        self.count = 0

    # --- units --------------------------------------------------------------------------------

    def _new_unit(self, number: int, node: Node) -> int:
        unit = self.count
        self.count += 1
        self.members[unit] = [number]
        self.deps[unit] = 0
        self.users[unit] = set()
        self._depend(unit, node)
        self.group_of.update((v, unit) for v in node.outputs)
        return unit

    def _depend(self, unit: int, node: Node) -> None:
        bits = 0
        for other in self._read_by(node):
            if other != unit:
                bits |= 1 << other | self.deps[other]
                self.users[other].add(unit)
        if bits & ~self.deps[unit]:
            self.deps[unit] |= bits
            for other in self._dependents(unit):
                self.deps[other] |= bits

    def _read_by(self, node: Node) -> set[int]:
        values = (*node.inputs, *self.before[node]) if node in self.before else node.inputs
        return {self.group_of[v] for v in values if v in self.group_of}

    def _dependents(self, unit: int) -> set[int]:
        """Return all units that depend on this one, directly or through others."""
        results: set[int] = set()
        stack = [unit]
        while stack:
            new = self.users[stack.pop()] - results
            results |= new
            stack += new
        return results

    def _can_take(self, unit: int, node: Node) -> bool:
        """Return whether the node depends on the unit only directly, through no other unit."""
        for v in node.inputs:
            other = self.group_of.get(v)
            if other is not None and other != unit and self.deps[other] >> unit & 1:
                return False
        return True

    # --- walk ---------------------------------------------------------------------------------

    def run(self) -> Graph:
        for number, node in enumerate(self.graph.nodes):
            if not self._fuse(number, node):
                self._new_unit(number, node)
        return self._emit()

    def _fuse(self, number: int, node: Node) -> bool:
        op = node.op
        for v in (*node.inputs, *node.outputs):
            if not v.size or v.dtype not in DTYPES:
                return False
        if op.elementwise and op.native is not None:
            return self._fuse_elementwise(number, node)
        if op.kind == "random":  # a different number for each element of the frame
            return self._start_random(number, node)
        if op.reduction:
            return _reduces_in_loops(node) and self._fuse_reduction(number, node)
        return op.view and self._fuse_view(number, node)

    def _candidates(self, node: Node) -> list[int]:
        return sorted((u for u in self._read_by(node) if u in self.groups), reverse=True)

    def _fuse_elementwise(self, number: int, node: Node) -> bool:
        candidates = self._candidates(node)
        if len(candidates) > 1:
            for i, a in enumerate(candidates):
                for b in candidates[i + 1 :]:
                    if a in self.groups and b in self.groups:
                        self._merge(b, a)
            candidates = self._candidates(node)
        for unit in candidates:
            if self._can_take(unit, node) and self._join(self.groups[unit], number, node):
                self._depend(unit, node)
                return True
        group = self._new_group(number, node, node.out.shape)
        if not self._join(group, number, node):
            raise AssertionError(f"{node!r} fits no group of its own")
        return True

    def _start_random(self, number: int, node: Node) -> bool:
        group = self._new_group(number, node, node.out.shape)
        self._take(group, number, node, group.whole, {(number, 0): (None,)}, False)
        return True

    def _new_group(self, number: int, node: Node, frame: tuple[int, ...]) -> _FusionGroup:
        unit = self._new_unit(number, node)
        self.members[unit] = []
        group = self.groups[unit] = _FusionGroup(unit, frame)
        return group

    # --- element-wise -----------------------------------------------------------------------

    def _join(self, group: _FusionGroup, number: int, node: Node) -> bool:
        if len(group.nodes) >= LARGEST:
            return False
        target = node.out.shape
        dims = self._result_dims(group, node, target)
        if dims is None:
            return False
        inside = [v in group.dims for v in node.inputs]
        after = any(v in group.after for v in node.inputs)
        reads = {}
        for i, v in enumerate(node.inputs):
            reads[number, i] = group.dims[v] if inside[i] else _read_dims(v, target, dims)
        if after and not self._fits_after(group, [*reads.values(), dims], node, inside):
            return False
        if after and not all(
            mine or v in self.graph.constants for v, mine in zip(node.inputs, inside)
        ):
            # A node that combines a sum with other data (an optimizer update) is faster by itself.
            return False
        self._take(group, number, node, dims, reads, after)
        return True

    def _result_dims(self, group: _FusionGroup, node: Node, target: tuple[int, ...]) -> Dims | None:
        whole, find = group.whole, group.dims.get
        if target == group.frame and all(find(v, whole) == whole for v in node.inputs):
            return whole  # one element for each place of the frame
        results: list[Any] = [None] * len(target)
        for v in node.inputs:
            if v not in group.dims:
                continue
            aligned = _align(v.shape, group.dims[v], target)
            if aligned is None:
                return None
            for i, d in enumerate(aligned):
                if d is not None:
                    if results[i] not in (None, d):
                        return None
                    results[i] = d
        identity = len(target) == len(group.frame) and all(
            d in (None, i) for i, d in enumerate(results)
        )
        for i, size in enumerate(target):
            if size == 1:
                results[i] = None
            elif results[i] is None:
                if not identity or group.frame[i] != size:
                    return None
                results[i] = i
        known = [d for d in results if d is not None]
        if known != sorted(set(known)):
            return None
        return tuple(results) if self._is_written_well(group, node, known) else None

    def _is_written_well(self, group: _FusionGroup, node: Node, dims: list[int]) -> bool:
        """Return whether a node computes one element per place, per row or after all rows.

        A value that varies only along columns, or not at all, would be computed repeatedly.
        """
        full = [i for i, s in enumerate(group.frame) if s != 1]
        if dims == full or any(v in group.after for v in node.inputs):
            return True
        rows = [i for i in full if group.split is not None and i < group.split]
        return dims == rows

    def _fits_after(
        self, group: _FusionGroup, every: Sequence[Dims], node: Node, inside: Sequence[bool]
    ) -> bool:
        split = len(group.frame) if group.split is None else group.split
        columns = range(split, len(group.frame))
        separate = range(group.groups)
        for dims in every:
            for d in dims:
                if d is not None and d not in columns and d not in separate:
                    return False
        # A value per group of rows is combined with numbers and constants only.
        if group.groups:
            return all(
                mine or all(d is None for d in dims) for mine, dims in zip(inside, every)
            ) and all(v in group.after for v, mine in zip(node.inputs, inside) if mine)
        return all(
            v in group.after or not any(d is not None and d < split for d in group.dims[v])
            for v, mine in zip(node.inputs, inside)
            if mine
        )

    def _take(
        self,
        group: _FusionGroup,
        number: int,
        node: Node,
        dims: Dims,
        reads: dict[Any, Any],
        after: bool,
    ) -> None:
        group.nodes.append(number)
        group.dims[node.out] = dims
        group.reads.update(reads)
        if after:
            group.after.add(node.out)
        self.members[group.number].append(number)
        self.group_of[node.out] = group.number

    # --- views --------------------------------------------------------------------------------

    def _fuse_view(self, number: int, node: Node) -> bool:
        """Keep a reshape by axes of size 1, or a broadcast, inside the group of its input."""
        x = node.inputs[0]
        unit = self.group_of.get(x, -1)
        group = self.groups.get(unit)
        if group is None or len(group.nodes) >= LARGEST:
            return False
        shape, target, x_dims = x.shape, node.out.shape, group.dims[x]
        if node.op.name == "reshape":
            if [s for s in shape if s != 1] != [s for s in target if s != 1]:
                return False
            rest = iter([d for d, s in zip(x_dims, shape) if s != 1])
            dims = tuple(None if s == 1 else next(rest) for s in target)
        else:
            broadcast = self._broadcast_dims(group, x, target)
            if broadcast is None:
                return False
            dims = broadcast
        after = x in group.after
        self._take(group, number, node, dims, {(number, 0): x_dims}, after)
        return True

    def _broadcast_dims(
        self, group: _FusionGroup, x: Value, target: tuple[int, ...]
    ) -> Dims | None:
        """Return the frame axes of the axes of `x`, broadcast to `target`.

        Every axis with several elements needs an axis of the frame: the loop writes (or sums) one
        element for each place along `dims`, so an axis without one would stay unwritten.
        """
        aligned = _align(x.shape, group.dims[x], target)
        assert aligned is not None
        new = [i for i, size in enumerate(target) if aligned[i] is None and size != 1]
        if not new:
            return tuple(aligned)
        if x in group.after or target != group.frame:
            return None
        if any(d not in (None, i) for i, d in enumerate(aligned)):
            return None
        return tuple(None if size == 1 else i for i, size in enumerate(target))

    # --- reductions -----------------------------------------------------------------------------

    def _fuse_reduction(self, number: int, node: Node) -> bool:
        x = node.inputs[0]
        if not _is_simple(x.shape, _axes(node)):
            return False
        unit = self.group_of.get(x, -1)
        group = self.groups.get(unit)
        if group is not None and self._reduce(group, number, node):
            self._depend(unit, node)
            return True
        fresh = self._new_group(number, node, x.shape)
        if not self._reduce(fresh, number, node):
            raise AssertionError(f"{node!r} fits no group of its own")
        return True

    def _reduce(self, group: _FusionGroup, number: int, node: Node) -> bool:
        x, axes, frame, whole = node.inputs[0], _axes(node), group.frame, group.whole
        x_dims = group.dims.get(x, whole if x.shape == frame else None)
        if x_dims is None or x.shape != frame or x_dims != whole or x in group.after:
            return False
        if len(group.nodes) >= LARGEST:
            return False
        kind, first, last = _kind(frame, axes)
        if kind == "row":
            if group.split not in (None, first):
                return False
            group.split = first
        elif kind == "column":
            grouped = any(s != 1 for s in frame[:first])
            if group.split not in (None, last):
                return False
            if group.after and group.groups != (first if grouped else 0):
                return False
            group.split, group.groups = last, first if grouped else 0
        elif group.groups:
            return False
        kept = [i for i in range(len(frame)) if i not in axes]
        if node.attrs["keepdims"]:
            dims = tuple(None if i in axes else whole[i] for i in range(len(frame)))
        else:
            dims = tuple(whole[i] for i in kept)
        self._take(group, number, node, dims, {(number, 0): x_dims}, kind != "row")
        return True

    # --- merging --------------------------------------------------------------------------------

    def _merge(self, a: int, b: int) -> None:
        """Merge two groups whose loops run over the same frame, if the result is correct."""
        first, second = self.groups[a], self.groups[b]
        if first.frame != second.frame or len(first.nodes) + len(second.nodes) > LARGEST:
            return
        if None not in (first.split, second.split) and first.split != second.split:
            return
        if first.groups != second.groups and first.after and second.after:
            return
        if self._lies_between(a, b) or self._lies_between(b, a):
            return
        for group, other_group in ((first, second), (second, first)):
            for (number, i), dims in group.reads.items():
                v = self.graph.nodes[number].inputs[i]
                if v in other_group.dims and (
                    v in other_group.after or other_group.dims[v] != dims
                ):
                    return
        self._absorb(first, second)

    def _lies_between(self, early: int, late: int) -> bool:
        """Return whether a third group needs `early`, and `late` needs that group."""
        if not self.deps[late] >> early & 1:
            return False
        # What `early` needs does not need `early`, so only the others are checked.
        between = self.deps[late] & ~self.deps[early] & ~(1 << early)
        while between:
            other = between.bit_length() - 1
            if self.deps[other] >> early & 1:
                return True
            between ^= 1 << other
        return False

    def _absorb(self, first: _FusionGroup, second: _FusionGroup) -> None:
        a, b = first.number, second.number
        first.nodes = sorted([*first.nodes, *second.nodes])
        first.split = second.split if first.split is None else first.split
        first.groups = first.groups or second.groups
        first.dims.update(second.dims)
        first.after |= second.after
        first.reads.update(second.reads)
        self.members[a] = sorted([*self.members[a], *self.members[b]])
        for v in second.dims:
            self.group_of[v] = a
        for number in second.nodes:
            for other in self._read_by(self.graph.nodes[number]) - {a, b}:
                self.users[other].discard(b)
                self.users[other].add(a)
        self.users[a] = (self.users[a] | self.users.pop(b)) - {a, b}
        bits = (self.deps[a] | self.deps.pop(b)) & ~(1 << a) & ~(1 << b)
        del self.groups[b], self.members[b]
        self.deps[a] = bits
        for other in self._dependents(a):
            self.deps[other] = self.deps[other] & ~(1 << b) | 1 << a | bits

    # --- result -----------------------------------------------------------------------------------

    def _emit(self) -> Graph:
        order = self._order()
        uses = self.graph.uses()
        nodes = []
        for unit in order:
            group = self.groups.get(unit)
            if group is None:
                nodes.append(self.graph.nodes[self.members[unit][0]])
            else:
                nodes.append(self._fused(group, uses))
        return self.graph.replace(nodes=nodes)

    def _order(self) -> list[int]:
        """Return the units in topological order that changes the given order least."""
        rank = {u: max(own) for u, own in self.members.items()}
        reads = {
            u: set().union(*(self._read_by(self.graph.nodes[n]) for n in own)) - {u}
            for u, own in self.members.items()
        }
        return in_rounds(rank, reads)

    def _fused(self, group: _FusionGroup, uses: dict[Value, int]) -> Node:
        inside = [self.graph.nodes[i] for i in group.nodes]
        own_uses: dict[Value, int] = {}
        inputs: dict[Value, None] = {}
        for node in inside:
            for v in node.inputs:
                own_uses[v] = own_uses.get(v, 0) + 1
                if v not in group.dims:
                    inputs[v] = None
        outputs = [n.out for n in inside if uses.get(n.out, 0) > own_uses.get(n.out, 0)]
        renumber = {number: i for i, number in enumerate(group.nodes)}
        body = FusedBody(
            Graph(inputs, {}, inside, outputs),
            group.frame,
            group.split,
            group.groups,
            {n.out: group.dims[n.out] for n in inside},
            {(renumber[n], i): d for (n, i), d in group.reads.items()},
        )
        return make_fused(body)


def _axes(node: Node) -> tuple[int, ...]:
    axis = node.attrs["axis"]
    return (axis,) if isinstance(axis, int) else tuple(axis)


def _reduces_in_loops(node: Node) -> bool:
    """Return whether a loop can do the reduction; argmax and argmin: only along the last axis."""
    if not node.op.gives_index:
        return True
    *rows, columns = node.inputs[0].shape or (1,)
    return bool(rows) and node.attrs["axis"] == len(rows) and columns != 1


def _is_simple(shape: Sequence[int], axes: Sequence[int]) -> bool:
    """Return whether the reduced axes are adjacent, axes of size 1 ignored."""
    real = [i for i in axes if shape[i] != 1]
    between = [i for i in range(len(shape)) if shape[i] != 1]
    if not real:
        return False
    places = [between.index(i) for i in real]
    return places == list(range(places[0], places[-1] + 1))


def _kind(frame: Sequence[int], axes: Sequence[int]) -> tuple[str, int, int]:
    """Return ("row" | "column" | "all", first reduced axis, the axis after the last one)."""
    real = [i for i in axes if frame[i] != 1]
    first, last = min(real), max(real) + 1
    before = math.prod(frame[:first])
    behind = math.prod(frame[last:])
    if before == 1 and behind == 1:
        # One row: its elements may use a sum over the row, but not a sum over everything.
        return ("row" if first else "all"), first, last
    if behind == 1:
        return "row", first, last
    return "column", first if before != 1 else 0, last


def fuse_loops(graph: Graph) -> Graph:
    """Return the graph with element-wise ops and reductions combined into fused nodes."""
    return _Fuser(graph).run()
