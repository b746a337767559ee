"""Graphs as plain records in which some sizes stay open, and back: the content of an export.

All sizes of a graph are known. To get a record for any batch size, a function is traced several
times with different sizes. The traces must contain the same nodes, and each number in which they
differ must be a sum of products of the open sizes ("n * 30" for a reshape of n rows of 30). Such a
number is stored as {"size": [[30, [0]]]}: 30 times open size number 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish.graph.control import GRAPHS, ControlOp, control_op
from kerasish.graph.ir import Graph, Value
from kerasish.graph.tracer import NodeWriter
from kerasish.ops import dtypes
from kerasish.ops.op import REGISTRY, Op
from kerasish.ops.shapes import Spec
from kerasish.tensor import Tensor, wrap
from kerasish.typing import Shape

_CONTROL = ("branch", "loop", "scan_along")
_MOST_OPEN = 4
_MOST_ELEMENTS = 2**31  # of one value, at the sizes with which a record is checked
_MOST_MADE = 2**26  # elements of a constant that is computed, not stored
# Each open size takes two values in all combinations, which determine the coefficients; the rest
# confirms them. The remainders by 2, 3, 4 and 5 differ, so that rounded sizes are detected.
_CORNERS = ((19, 26), (23, 34), (29, 38), (31, 46))
_CHECKS = ((40, 21, 51, 27), (33, 44, 20, 56), (48, 30, 35, 62), (37, 55, 42, 24), (61, 49, 64, 33))

Sizes = tuple[int, ...]


def sample_sizes(count: int) -> list[Sizes]:
    """Return the sizes with which a function with `count` open sizes must be traced.

    Raises:
        ValueError: there are too many open sizes.

    Example:
        >>> sample_sizes(1)[:3]
        [(19,), (26,), (40,)]
    """
    if count > _MOST_OPEN:
        raise ValueError(f"{count} sizes are open (None), at most {_MOST_OPEN} can be.")
    if not count:
        return [()]
    return [*itertools.product(*_CORNERS[:count]), *(row[:count] for row in _CHECKS)]


# --- writing ----------------------------------------------------------------------------------


class ReferenceRecorder:
    """Converts traces of one function to one record.

    Args:
        sizes: the open sizes of each trace; from `sample_sizes`.
        keep: stores an array and returns its name.
    """

    def __init__(self, sizes: Sequence[Sizes], keep: Callable[[Any], str]) -> None:
        self._sizes, self._keep = sizes, keep
        self._open = len(sizes[0])
        subsets = range(self._open + 1)
        self._products = [s for n in subsets for s in itertools.combinations(range(self._open), n)]
        corners = sizes[: len(self._products)]
        terms = [[math.prod(row[i] for i in s) for s in self._products] for row in corners]
        self._inverse = np.linalg.inv(np.array(terms, "float64"))

    def graph(self, graphs: Sequence[Graph]) -> dict[str, Any]:
        """Return the record of the graphs, one for each trace.

        Raises:
            ValueError: they depend on the sizes in a way that a record cannot express.
        """
        if len({(len(g.inputs), len(g.constants), len(g.nodes)) for g in graphs}) > 1:
            raise self._error("the number of steps depends on them")
        places = [_numbers(g) for g in graphs]
        return {
            "inputs": [self.spec(column) for column in zip(*(g.inputs for g in graphs))],
            "constants": [self._constant(c) for c in zip(*(g.constants.values() for g in graphs))],
            "nodes": [self._node(nodes, places) for nodes in zip(*(g.nodes for g in graphs))],
            "outputs": self._places([g.outputs for g in graphs], places),
        }

    def spec(self, values: Sequence[Any]) -> list[Any]:
        """Return [dtype, shape] of corresponding values (or specs) of the traces."""
        dtype = values[0].dtype
        if any(v.dtype != dtype or len(v.shape) != len(values[0].shape) for v in values):
            raise self._error("a value's dtype or number of axes depends on them")
        return [dtype, [self._number(column) for column in zip(*(v.shape for v in values))]]

    def _error(self, why: str) -> ValueError:
        return ValueError(f"sizes are left open (None), but {why}; say these sizes")

    def _places(self, rows: Sequence[Any], places: Sequence[dict[Value, int]]) -> list[int]:
        results = [[at[v] for v in row] for row, at in zip(rows, places)]
        if any(row != results[0] for row in results):
            raise self._error("which steps are taken depends on them")
        return results[0]

    def _node(self, nodes: Sequence[Any], places: Sequence[dict[Value, int]]) -> list[Any]:
        first = nodes[0]
        if any(n.op is not first.op or n.attrs.keys() != first.attrs.keys() for n in nodes):
            raise self._error(f"whether {first.op.name!r} is computed depends on them")
        name = first.op.name
        known: Any = first.op if isinstance(first.op, ControlOp) else REGISTRY.get(name)
        if known is not first.op:
            raise ValueError(f"the step {name!r} is none that files know by name")
        attrs = {name: self._attr([n.attrs[name] for n in nodes], first) for name in first.attrs}
        return [first.op.name, self._places([n.inputs for n in nodes], places), attrs]

    def _attr(self, values: Sequence[Any], node: Any) -> Any:
        first = values[0]
        if isinstance(first, np.generic):
            return self._attr([v.item() for v in values], node)
        if isinstance(first, Graph):
            return {"graph": self.graph(values)}
        if isinstance(first, tuple) and all(type(v) is tuple for v in values):
            if len({len(v) for v in values}) == 1:
                return [self._attr(column, node) for column in zip(*values)]
        elif type(first) is int and all(type(v) is int for v in values):
            return self._number(values)
        elif first is None or isinstance(first, (bool, float, str)):
            if all(type(v) is type(first) and repr(v) == repr(first) for v in values):
                return first
        else:
            raise ValueError(f"an attribute of {node.op.name!r} is a {type(first).__name__}")
        raise self._error(f"an attribute of {node.op.name!r} depends on them")

    def _number(self, values: Sequence[Any]) -> dict[str, Any] | int:
        """Return a number, or the formula that computes it from the open sizes."""
        if all(v == values[0] for v in values):
            return values[0]
        corners = np.array(values[: len(self._products)], "float64")
        factors = [round(float(f)) for f in self._inverse @ corners]
        terms = [[f, list(s)] for f, s in zip(factors, self._products) if f]
        if any(_evaluate(terms, row) != v for row, v in zip(self._sizes, values)):
            raise self._error("a size computed from them is no sum of their products")
        return {"size": terms}

    def _constant(self, arrays: Sequence[Any]) -> str | list[Any]:
        arrays = [np.asarray(a) for a in arrays]
        first = arrays[0]
        if all(a.shape == first.shape and a.tobytes() == first.tobytes() for a in arrays):
            return self._keep(first)
        if any(a.size == 0 or (a != a.flat[0]).any() for a in arrays):
            raise self._error("a table computed from them would have to be kept for each")
        dtype, shape = self.spec([Spec(a.shape, dtypes.name_of(a.dtype)) for a in arrays])
        return [dtype, shape, self._number([a.flat[0].item() for a in arrays])]


def _numbers(graph: Graph) -> dict[Value, int]:
    result = (v for node in graph.nodes for v in node.outputs)
    return {v: i for i, v in enumerate(itertools.chain(graph.inputs, graph.constants, result))}


def _evaluate(terms: Sequence[Any], sizes: Sizes) -> int:
    return sum(factor * math.prod(sizes[i] for i in product) for factor, product in terms)


# --- reading ----------------------------------------------------------------------------------


class Player:
    """Runs a record of a graph.

    Args:
        record: the result of `Recorder.graph`, or the content of a file.
        arrays: name -> stored constant.
        sizes: the open sizes.
    """

    def __init__(self, record: dict[str, Any], arrays: dict[str, Any], sizes: Sizes) -> None:
        self._record, self._arrays, self._sizes = record, arrays, sizes

    def run(self, inputs: Sequence[Tensor], engine: Any) -> list[Tensor]:
        """Return the outputs for tensors; `engine` applies each op."""
        values = [*inputs, *(self._constant(c) for c in self._record["constants"])]
        for name, places, attrs in self._record["nodes"]:
            taken = [_at(values, i) for i in places]
            filled = {key: self._attr(attr) for key, attr in attrs.items()}
            op = _op_named(name, filled)
            if isinstance(op, ControlOp):
                _check_control(name, [Spec(tuple(t.shape), t.dtype) for t in taken], filled)
            out = engine.apply(op, taken, filled)
            values.extend((out,) if op.outputs == 1 else out)
        return [_at(values, i) for i in self._record["outputs"]]

    def check(self) -> Graph:
        """Return the graph for these sizes, without computing or allocating anything.

        Raises:
            ValueError: no `ReferenceRecorder` could have written this record.
        """
        writer = NodeWriter()
        inputs = [Value(spec.shape, spec.dtype) for spec in self.specs()]
        outputs = [writer.value_of(t) for t in self.run([wrap(v) for v in inputs], writer)]
        graph = Graph(inputs, writer.constants, writer.nodes, outputs)
        largest = max((v.size for node in graph.nodes for v in node.outputs), default=0)
        if largest > _MOST_ELEMENTS:
            raise ValueError(f"a value of {largest} elements would be made")
        return graph

    def specs(self) -> list[Spec]:
        """Return shape and dtype of the inputs."""
        return [self._spec(*parts) for parts in self._record["inputs"]]

    def _spec(self, dtype: str, shape: Shape) -> Spec:
        sizes = tuple(self._size(n) for n in shape)
        return Spec(sizes, dtypes.name_of(dtypes.array_dtype(dtype)))

    def _size(self, number: dict[str, Any] | int) -> int:
        result = self._attr(number)
        if type(result) is not int or result < 0:
            raise ValueError(f"{result!r} is no size")
        return result

    def _attr(self, value: dict[str, Any] | int) -> Any:
        if isinstance(value, list):
            return tuple(self._attr(v) for v in value)
        if not isinstance(value, dict):
            return value
        if value.keys() == {"size"}:
            return self._formula(value["size"])
        if value.keys() == {"graph"}:
            return Player(value["graph"], self._arrays, self._sizes).check()
        raise ValueError(f"an attribute says {sorted(value)}")

    def _formula(self, terms: Sequence[Any]) -> int:
        for factor, product in terms:
            if not all(type(i) is int and 0 <= i < len(self._sizes) for i in product):
                raise ValueError(f"{product!r} names sizes that are not open")
            if type(factor) is not int or len(product) > _MOST_OPEN:
                raise ValueError(f"{factor!r} times {len(product)} sizes is no size")
        return _evaluate(terms, self._sizes)

    def _constant(self, entry: Any) -> Tensor:
        if isinstance(entry, str):
            return wrap(self._arrays[entry])
        dtype, shape, value = entry
        spec = self._spec(dtype, shape)
        if math.prod(spec.shape) > _MOST_MADE:
            raise ValueError(f"a constant of {math.prod(spec.shape)} elements would be made")
        return wrap(np.full(spec.shape, self._attr(value), dtypes.array_dtype(spec.dtype)))


def _at(values: Sequence[Any], place: int) -> Tensor:
    if type(place) is not int or not 0 <= place < len(values):
        raise ValueError(f"{place!r} is none of the {len(values)} values before")
    return values[place]


def _op_named(name: str, attrs: dict[str, Any]) -> Op | ControlOp:
    if name not in _CONTROL:
        result = REGISTRY.get(name)
        if result is None:
            raise ValueError(f"there is no op {name!r}")
        if attrs.keys() != set(result.attr_names):
            raise ValueError(f"the op {name!r} has the attributes {list(result.attr_names)}")
        return result
    graphs = [g for key in GRAPHS if key in attrs for g in _listed(attrs[key])]
    if not graphs or not all(isinstance(g, Graph) for g in graphs):
        raise ValueError(f"the op {name!r} needs graphs")
    count = len(attrs["graphs"][0].outputs if name == "branch" else attrs["body"].outputs)
    return control_op(name, count + (attrs["carried"] if attrs.get("trail") else 0))


def _listed(value: object) -> Sequence[Any]:
    return value if isinstance(value, tuple) else (value,)


def _check_control(name: str, given: list[Spec], attrs: dict[str, Any]) -> None:
    """Raise unless the graphs inside a node have the inputs and outputs that the node needs."""
    if name == "branch":
        index, *captured = given
        first = attrs["graphs"][0]
        fits = index == Spec((), "int32") and all(
            _specs(g.inputs) == captured and _specs(g.outputs) == _specs(first.outputs)
            for g in attrs["graphs"]
        )
    elif name == "loop":
        test, body, carried = attrs["test"], attrs["body"], attrs["carried"]
        fits = (
            _specs(test.inputs) == _specs(body.inputs) == given
            and _specs(body.outputs) == given[:carried]
            and _specs(test.outputs) == [Spec((), "bool")]
        )
    else:
        carried, length = attrs["carried"], attrs["length"]
        until = carried + attrs["scanned"]
        along = given[carried:until]
        rows = [Spec(s.shape[1:], s.dtype) for s in along]
        fits = (
            length > 0
            and all(s.shape[:1] == (length,) for s in along)
            and _specs(attrs["body"].inputs) == [*given[:carried], *rows, *given[until:]]
            and _specs(attrs["body"].outputs)[:carried] == given[:carried]
        )
    if not fits:
        raise ValueError(f"the graphs inside {name!r} do not fit its inputs")


def _specs(values: Sequence[Value]) -> list[Spec]:
    return [v.spec for v in values]
