"""Builds an ONNX graph: values with dtypes and open sizes, nodes, initializers, names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish.export.onnx import stored
from kerasish.export.onnx.package import need_onnx
from kerasish.graph.symbolic import OpenSize
from kerasish.ops import dtypes


class Item:
    """A value of the ONNX graph.

    Attributes:
        name: its name in the file.
        dtype: kerasish's name of its dtype.
        shape: a number, an `OpenSize` or None for each axis.
        array: its numbers, where they are known when the file is written.
        turned: (item, axes) if this is the transpose of `item` by `axes`.
        last: its last part along axis 0, where a node gives that, too. A value without a name has
            this part only.
    """

    __slots__ = ("array", "dtype", "last", "name", "shape", "turned")

    def __init__(self, name: str, dtype: str, shape: Sequence[Any], array: Any = None) -> None:
        self.name, self.dtype, self.shape, self.array = name, dtype, tuple(shape), array
        self.turned: tuple[Item, tuple[int, ...]] | None = None
        self.last: Item | None = None

    def __repr__(self) -> str:
        return f"<{self.name}: {self.dtype}{list(self.shape)}>"


_WIDER = {
    "bfloat16": "float32", "float16": "float32", "float32": "float64",
    "int8": "int32", "int16": "int32", "int32": "int64",
    "uint8": "int32", "uint16": "int32", "uint32": "int64",
}  # fmt: skip


DOMAINS = {"ai.onnx.ml": 3}  # of operators outside ONNX's own set -> version of theirs


def _type_text(dtype: str) -> str:
    """Return ONNX's text of a type, as schemas have it."""
    short = {"float32": "float", "float64": "double"}.get(dtype, dtype)
    return f"tensor({short})"


class OnnxWriter:
    """One graph of a file, or the body of a loop or branch inside it.

    Args:
        opset: the version of ONNX's operator set.
        open_sizes: for each open size the (input, axis) where it can be read.
        inputs: the graph inputs that `open_sizes` refers to.
        outer: the writer of the graph around this one.
    """

    def __init__(
        self,
        opset: int,
        open_sizes: Sequence[tuple[Item, int]] = (),
        outer: OnnxWriter | None = None,
    ) -> None:
        self.opset, self.outer = opset, outer
        self.onnx = need_onnx("export to ONNX")
        self.nodes: list[Any] = []
        self.path = ""
        self._root = self if outer is None else outer.root
        if outer is None:
            self.open_sizes = list(open_sizes)
            self.initializers: dict[str, Any] = {}
            self._names: dict[str, int] = {}
            self._known: dict[Any, Item] = {}
            self.ranks: dict[str, int] = {}
            self.domains: dict[str, int] = {}  # of operators outside ONNX's own set -> version
            self.translate: Any = None  # (writer, graph, inputs) -> results; for graphs in nodes
        self._sizes: dict[Any, Item] = {}

    @property
    def root(self) -> OnnxWriter:
        """The writer of the outermost graph, which holds names and initializers."""
        return self._root

    # --- names and constants ----------------------------------------------------------------

    def name(self, wanted: str) -> str:
        """Return `wanted`, or a variation of it that no value has."""
        names = self.root._names
        count = names.get(wanted, 0)
        names[wanted] = count + 1
        if not count:
            return wanted
        return self.name(f"{wanted}_{count}")

    def initializer(self, array: Any, name: str = "constant") -> Item:
        """Return a stored array as a value; equal small constants are stored once."""
        array = np.asarray(array)
        key = None
        if array.size <= 64 and name == "constant":
            key = (array.dtype.str, stored.name_of(array), array.shape, array.tobytes())
            if key in self.root._known:
                return self.root._known[key]
        result = Item(self.name(name), stored.name_of(array), array.shape, array)
        if key is not None:
            self.root._known[key] = result
        return result

    def derived(self, x: Item, key: tuple[Any, ...], f: Callable[[Any], Any]) -> Item:
        """Return a stored array computed from x; it is stored once.

        Args:
            x: a stored array.
            key: what is computed; the name ends with its first part.
            f: x's array -> the new one.
        """
        known = self.root._known
        place = (x.name, *key)
        if place not in known:
            known[place] = self.initializer(f(x.array), f"{x.name}/{key[0]}")
        return known[place]

    def numbers(self, values: Sequence[int] | int) -> Item:
        """Return int64 numbers as a value."""
        return self.initializer(np.array(values, "int64"))

    def like(self, value: Any, dtype: str) -> Item:
        """Return one number of a dtype as a value without axes."""
        return self.initializer(np.array(value).astype(dtypes.array_dtype(dtype)))

    def _use(self, item: Item) -> str:
        if not item.name:
            raise ValueError("it needs the states of all steps, of which ONNX gives the last only")
        if item.array is not None:
            self.root.initializers.setdefault(item.name, item.array)
        self.root.ranks[item.name] = len(item.shape)
        return item.name

    # --- nodes -------------------------------------------------------------------------------

    def op(
        self,
        kind: str,
        inputs: Sequence[Item | None],
        dtype: str | None = None,
        shape: Sequence[Any] | None = None,
        domain: str = "",
        **attrs: Any,
    ) -> Item:
        """Add a node of one result; return the result.

        Args:
            kind: the ONNX operator.
            inputs: its inputs; None for an optional one that is left out.
            dtype, shape: of the result; None: of the first input.
            domain: of the operator.
            attrs: its attributes; those that are None are left out.
        """
        first = inputs[0] if inputs else None
        spec = (
            dtype or (first.dtype if first else "float32"),
            shape if shape is not None else (first.shape if first else ()),
        )
        return self.ops(kind, inputs, [spec], domain, **attrs)[0]

    def ops(
        self,
        kind: str,
        inputs: Sequence[Item | None],
        results: Sequence[tuple[str, Sequence[Any]] | None],
        domain: str = "",
        **attrs: Any,
    ) -> list[Item]:
        """Add a node of several results, (dtype, shape) each; None: a result left out."""
        base = self.path or kind.lower()
        narrow: list[str | None] = [None] * len(results)
        if domain:
            self.root.domains[domain] = DOMAINS[domain]
        else:
            inputs, results, narrow = self._within_types(kind, list(inputs), list(results))
        items = [
            None if spec is None else Item(self.name(f"{base}/{kind}"), spec[0], spec[1])
            for spec in results
        ]
        names = ["" if item is None else self._use(item) for item in inputs]
        while names and not names[-1]:
            names.pop()
        given = {key: value for key, value in attrs.items() if value is not None}
        node = self.onnx.helper.make_node(
            kind,
            names,
            ["" if item is None else item.name for item in items],
            name=next(item.name for item in items if item is not None),
            domain=domain,
            **given,
        )
        self.nodes.append(node)
        cast: list[Any] = [
            item if item is None or dtype is None else self.cast(item, dtype)
            for item, dtype in zip(items, narrow)
        ]
        return cast

    def _within_types(
        self, kind: str, inputs: list[Item | None], results: list[Any]
    ) -> tuple[list[Item | None], list[Any], list[str | None]]:
        """Return inputs and results in dtypes that an operator has, and those of the results.

        Where its schema has no tensors of a dtype, the operator computes in a wider one.
        """
        schema = self.onnx.defs.get_schema(kind, self.opset)
        allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
        wider: dict[str, str] = {}
        for i, item in enumerate(inputs):
            formal = schema.inputs[min(i, len(schema.inputs) - 1)].type_str
            if item is not None and formal in allowed and formal not in wider:
                known = allowed[formal]
                dtype: str | None = item.dtype
                while dtype is not None and _type_text(dtype) not in known:
                    dtype = _WIDER.get(dtype)
                if dtype is not None and dtype != item.dtype:
                    wider[formal] = dtype
        narrow: list[str | None] = [None] * len(results)
        if not wider:
            return inputs, results, narrow
        for i, item in enumerate(inputs):
            formal = schema.inputs[min(i, len(schema.inputs) - 1)].type_str
            if item is not None and formal in wider:
                inputs[i] = self.cast(item, wider[formal])
        for i, spec in enumerate(results):
            formal = schema.outputs[min(i, len(schema.outputs) - 1)].type_str
            if spec is not None and formal in wider:
                results[i], narrow[i] = (wider[formal], spec[1]), spec[0]
        return inputs, results, narrow

    def export_item(self, item: Item, name: str) -> Item:
        """Return a value of a wanted name that equals `item`: an output of the graph."""
        result = Item(name, item.dtype, item.shape)
        self.nodes.append(
            self.onnx.helper.make_node("Identity", [self._use(item)], [name], name=name)
        )
        return result

    # --- conversions ----------------------------------------------------------------------------

    def code(self, dtype: str) -> int:
        """Return ONNX's number of a dtype.

        Raises:
            ValueError: ONNX has no such dtype.
        """
        code = stored.code_of(self.onnx, dtype)
        if not isinstance(code, int):
            raise ValueError(f"ONNX has no tensors of {dtype}")
        return code

    def cast(self, x: Item, dtype: str) -> Item:
        """Return x in another dtype."""
        if x.dtype == dtype:
            return x
        if x.array is not None:
            kind = dtypes.array_dtype(dtype)
            return self.derived(x, (dtype,), lambda a: a.astype(kind))
        return self.op("Cast", [x], dtype, to=self.code(dtype))

    def transpose(self, x: Item, axes: Sequence[int]) -> Item:
        """Return x with its axes in another order; transposes of transposes are joined."""
        axes = tuple(axes)
        if x.turned is not None:
            source, first = x.turned
            joined = tuple(first[a] for a in axes)
            return self.transpose(source, joined)
        if axes == tuple(range(len(axes))):
            return x
        if x.array is not None:
            return self.derived(x, ("transposed", axes), lambda a: np.transpose(a, axes))
        shape = tuple(x.shape[a] for a in axes)
        result = self.op("Transpose", [x], shape=shape, perm=list(axes))
        result.turned = (x, axes)
        return result

    def reshape(self, x: Item, shape: Sequence[Any]) -> Item:
        """Return the elements of x in another shape."""
        shape = tuple(shape)
        if shape == x.shape and None not in shape:
            return x
        if x.array is not None and all(type(n) is int for n in shape):
            return self.derived(x, ("reshaped", shape), lambda a: a.reshape(shape))
        open_axes = [i for i, n in enumerate(shape) if type(n) is not int]
        if len(open_axes) == 1 and 0 not in shape:
            target = self.numbers([-1 if i in open_axes else n for i, n in enumerate(shape)])
        else:
            target = self.shape(shape)
        return self.op("Reshape", [x, target], shape=shape, allowzero=1 if 0 in shape else None)

    def squeeze(self, x: Item, axes: Sequence[int]) -> Item:
        """Return x without axes of size 1."""
        shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        return self.op("Squeeze", [x, self.numbers(list(axes))], shape=shape)

    def unsqueeze(self, x: Item, axes: Sequence[int]) -> Item:
        """Return x with axes of size 1 at `axes` of the result."""
        if x.array is not None:
            return self.derived(x, ("unsqueezed", *axes), lambda a: np.expand_dims(a, tuple(axes)))
        rest = iter(x.shape)
        count = len(x.shape) + len(axes)
        shape = tuple(1 if i in axes else next(rest) for i in range(count))
        return self.op("Unsqueeze", [x, self.numbers(list(axes))], shape=shape)

    def slice(self, x: Item, axis: int, start: Any, stop: Any, size: Any, step: int = 1) -> Item:
        """Return the part of x along one axis."""
        shape = tuple(size if i == axis else n for i, n in enumerate(x.shape))
        inputs = [x, self.shape([start]), self.shape([stop]), self.numbers([axis])]
        return self.op("Slice", [*inputs, self.numbers([step])], shape=shape)

    def concat(self, parts: Sequence[Item], axis: int, size: Any = None) -> Item:
        """Return the parts joined along an axis."""
        if all(p.array is not None for p in parts):
            return self.initializer(
                np.concatenate([p.array for p in parts], axis), f"{parts[0].name}/joined"
            )
        shape = tuple(size if i == axis else n for i, n in enumerate(parts[0].shape))
        return self.op("Concat", list(parts), shape=shape, axis=axis)

    # --- sizes ----------------------------------------------------------------------------------

    def shape(self, sizes: Sequence[Any]) -> Item:
        """Return sizes as one int64 vector.

        Raises:
            ValueError: a size is not known.
        """
        if all(type(n) is int for n in sizes):
            return self.numbers(list(sizes))
        parts = [self.size(n) for n in sizes]
        return parts[0] if len(parts) == 1 else self.concat(parts, 0, len(parts))

    def size(self, size: Any) -> Item:
        """Return a size as an int64 vector of one element.

        Raises:
            ValueError: it is not known.
        """
        if size is None:
            raise ValueError("a size is needed that is no sum of products of the open sizes")
        if type(size) is int:
            return self.numbers([size])
        if self.outer is not None:
            return self.outer.size(size)
        if size not in self._sizes:
            self._sizes[size] = self._computed(size)
        return self._sizes[size]

    def _computed(self, size: OpenSize) -> Item:
        # Sizes are computed in front of all other nodes, for they may be asked for anywhere.
        mark, path = len(self.nodes), self.path
        self.path = "sizes"
        total: Item | None = None
        for factor, product in size.terms:
            part: Item | None = None
            for number in product:
                one = self._open(number)
                part = one if part is None else self.op("Mul", [part, one])
            if part is None:
                part = self.numbers([factor])
            elif factor != 1:
                part = self.op("Mul", [part, self.numbers([factor])])
            total = part if total is None else self.op("Add", [total, part])
        created = self.nodes[mark:]
        del self.nodes[mark:]
        self.nodes[self._front : self._front] = created
        self._front += len(created)
        self.path = path
        return total if total is not None else self.numbers([0])

    _front = 0

    def _open(self, number: int) -> Item:
        key = ("open", number)
        if key not in self._sizes:
            item, axis = self.open_sizes[number]
            self._sizes[key] = self.op("Shape", [item], "int64", (1,), start=axis, end=axis + 1)
        return self._sizes[key]

    def as_scalar(self, size: Any, dtype: str) -> Item:
        """Return a size, or another known number, as a number of a dtype without axes."""
        if size is None or isinstance(size, OpenSize):
            return self.cast(self.reshape(self.size(size), ()), dtype)
        return self.like(size, dtype)

    def filled(self, value: Any, dtype: str, shape: Sequence[Any]) -> Item:
        """Return a number, known or an open size, repeated in a shape."""
        number = self.as_scalar(value, dtype)
        return self.op("Expand", [number, self.shape(shape)], dtype, shape) if shape else number
