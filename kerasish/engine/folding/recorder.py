"""Recording: a function of one structure runs without numbers; its calls are written down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from kerasish import ops, tree
from kerasish.autodiff import vmap
from kerasish.engine.folding.table import FoldedCall, FoldedTable
from kerasish.engine.layer.call_context import NOWHERE, context
from kerasish.errors import NumberAskedError, ShapeError, TraceError, at_user_line
from kerasish.graph.abstract import infer
from kerasish.ops.op import Engine, Op, using_engine
from kerasish.ops.shapes import Spec
from kerasish.overriding import override
from kerasish.tensor import Tensor, Variable, convert, is_traced, name_scope, prepare, wrap
from kerasish.typing import Structure


class Deferred:
    """The value of a tensor in a folded function: a result of a call that has not run yet.

    Attributes:
        shape, dtype: those of the value, without an axis of rows.
        kind: the number of its class in the table.
        number: which value of its record it is.
        level: 1 more than the deepest argument of the call that makes it; 0: given data.
        record: the record that it belongs to.
    """

    __slots__ = ("dtype", "kind", "level", "number", "record", "shape")

    def __init__(self, record: CallRecord, kind: int, number: int, level: int) -> None:
        self.shape, self.dtype = record.table.classes[kind]
        self.record, self.kind, self.number, self.level = record, kind, number, level

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)} of a folded call"


class CallRecord:
    """The calls that a function made for one structure: lists that grow while it runs.

    Attributes:
        count: values so far; values are numbered in the order of their creation.
        kinds, levels, firsts: of each call: its kind, its level, the number of its first result.
        arguments: the numbers of the arguments of all calls, one call after the other.
        leaves: class -> (numbers, rows): the given data.
        roots: the numbers of the function's results.
    """

    def __init__(self, table: FoldedTable) -> None:
        self.table = table
        self.count = 0
        self.kinds: Any = []
        self.levels: Any = []
        self.firsts: Any = []
        self.arguments: Any = []
        self.leaves: dict[int, tuple[list[int], list[Any]]] = {}
        self.roots: list[int] = []

    def leaf(self, kind: int, row: Any) -> Deferred:
        """Return the value of given data."""
        numbers, rows = self.leaves.setdefault(kind, ([], []))
        numbers.append(self.count)
        rows.append(row)
        self.count += 1
        return Deferred(self, kind, self.count - 1, 0)

    def check_own(self, value: Deferred) -> None:
        """Raise if a value belongs to another structure's record."""
        if value.record is not self:
            raise ValueError(
                "A folded function used a value that it computed for another structure"
                f"{at_user_line()}. Keep no tensors from one structure to the next."
            )

    def call(self, number: int, values: Sequence[Deferred]) -> list[Tensor]:
        """Note a call of a kind; return its results."""
        level = 0
        arguments = self.arguments
        for value in values:
            if value.record is not self:
                self.check_own(value)
            arguments.append(value.number)
            if value.level > level:
                level = value.level
        level += 1
        self.kinds.append(number)
        self.levels.append(level)
        self.firsts.append(self.count)
        results = []
        for kind in self.table.calls[number].outputs:
            results.append(wrap(Deferred(self, kind, self.count, level)))
            self.count += 1
        return results

    def finish(self) -> CallRecord:
        """Turn the lists into arrays."""
        for name in ("kinds", "levels", "firsts", "arguments"):
            setattr(self, name, np.array(getattr(self, name), np.int32))
        return self


class _Slot:
    """Placeholder for a numbered argument in the arguments of a call."""

    def __init__(self, number: int) -> None:
        self.number = number


class Recorder(Engine):
    """The engine, and what layers hand their calls to, while a folded function is recorded.

    Args:
        table: the kinds of calls; new ones are added.
        name: the name of the folded layer, under which new layers are built.
        met: called with each layer of which a call is new.
    """

    def __init__(self, table: FoldedTable, name: str, met: Callable[[Any], None]) -> None:
        self.table, self.name, self._met = table, name, met
        self.record = CallRecord(table)

    def begin(self) -> CallRecord:
        """Start the record of another structure."""
        self.record = CallRecord(self.table)
        return self.record

    # --- layers ---------------------------------------------------------------------------------

    def layer_call(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Structure:
        """Note a call of a layer; return its results, without numbers."""
        if layer.runs_on_host:
            with outside():
                return layer(*args, **kwargs)
        key: list[Any] = [layer]
        values: list[Deferred] = []
        template = self._describe((args, kwargs) if kwargs else args, key, values)
        if not values:
            raise ValueError(
                f"{layer.display_name()} was called without data in a folded function"
                f"{at_user_line()}: its arguments hold no tensor, array or number."
            )
        names = tuple(key)
        number = self.table.find(names)
        if number is None:
            number = self.table.add(
                names, lambda: self._layer_kind(layer, template, bool(kwargs), values)
            )
        results = self.record.call(number, values)
        structure = self.table.calls[number].structure
        return results[0] if structure is None else tree.pack_sequence_as(structure, results)

    def _describe(self, x: Structure, key: list[Any], values: list[Deferred]) -> Structure:
        """Return x with slots for its data; add what distinguishes kinds of calls to `key`."""
        kind = type(x)
        if kind is tuple or kind is list:
            key.append((kind, len(x)))
            parts = [self._describe(part, key, values) for part in x]
            return tuple(parts) if kind is tuple else parts
        if kind is dict:
            key.append((dict, tuple(x)))
            return {name: self._describe(part, key, values) for name, part in x.items()}
        if x is None or kind is bool or kind is str or callable(x) and not hasattr(x, "shape"):
            key.append((kind, x))
            return x
        if isinstance(x, tuple):  # named
            key.append((kind, len(x)))
            return kind(*(self._describe(part, key, values) for part in x))
        value = self.value_of(x)
        key.append(value.kind)
        values.append(value)
        return _Slot(len(values) - 1)

    def value_of(self, x: Any) -> Deferred:
        """Return the value of what a folded function passes on: a tensor, a number, a variable."""
        if type(x) is Tensor:
            value = x.value
            if type(value) is Deferred:
                return value
            if is_traced(x):
                raise TraceError(
                    "A folded function reads a tensor of a compiled function around it"
                    f"{at_user_line()}. Pass such data through the structures, or use it behind "
                    "the folded layer."
                )
            if x.tracked:
                raise ValueError(
                    "A folded function reads a tensor to which gradients should flow"
                    f"{at_user_line()}: data in structures are constants. Make it a Variable, or "
                    "compute it by a layer in the folded function."
                )
        elif isinstance(x, Variable):
            return self._variable(x)
        elif type(x) is int:
            return self.record.leaf(self.table.class_of((), "int32"), x)
        try:
            tensor = convert(x)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"A folded function passes {x!r} ({type(x).__name__}) to a layer or an op"
                f"{at_user_line()}: expected a tensor, an array, a number, or a structure of these."
            ) from error
        row = np.asarray(tensor.value)
        return self.record.leaf(self.table.class_of(row.shape, tensor.dtype), row)

    def _variable(self, variable: Variable) -> Deferred:
        """Return a variable as a value of every node that reads it."""
        shape, dtype = tuple(variable.shape), variable.dtype

        def read(given: Sequence[Tensor]) -> list[Tensor]:
            return [ops.broadcast_to(ops.expand_dims(variable, 0), (given[0].shape[0], *shape))]

        any_row = self.record.leaf(self.table.class_of((), "int32"), 0)
        number = self.table.add(
            ("variable", variable),
            lambda: FoldedCall(
                f"variable {variable.path!r}", read, (any_row.kind,),
                (self.table.class_of(shape, dtype),), None,
            ),
        )  # fmt: skip
        value: Deferred = self.record.call(number, [any_row])[0].value
        return value

    def _layer_kind(
        self, layer: Any, template: Structure, named: bool, values: Sequence[Deferred]
    ) -> FoldedCall:
        """Return a new kind of call of a layer, which is built if it was not."""
        for inner in layer.flatten_layers():
            if inner.activity_regularizer is not None:
                raise ValueError(
                    f"{inner.display_name()} has an activity_regularizer, which a folded function "
                    "does not add up. Put the layer behind the folded layer."
                )

        structure: list[Any] = [None]

        def outline(given: Sequence[Tensor]) -> list[Tensor]:
            filled = tree.map_structure(
                lambda x: given[x.number] if isinstance(x, _Slot) else x, template
            )
            args, kwargs = filled if named else (filled, {})
            result = layer(*args, **kwargs)
            if tree.is_nested(result):
                structure[0] = tree.map_structure(lambda t: None, result)
            return [convert(t) for t in tree.flatten(result)]

        def function(given: Sequence[Tensor]) -> list[Tensor]:
            with outside(context.training):
                return outline(given)

        specs = [Spec((None, *v.shape), v.dtype) for v in values]
        with outside(), name_scope(self.name):
            leaves = infer(outline, [specs], by_values=True)
        for spec in leaves:
            if not spec.shape or spec.shape[0] is not None:
                raise ShapeError(
                    f"{layer.display_name()} in a folded function: expected results with one row "
                    f"per row of its arguments, got {spec}. A folded function calls a layer on "
                    "many nodes at once, the nodes along axis 0."
                )
            if None in spec.shape[1:]:
                raise ShapeError(
                    f"{layer.display_name()} in a folded function: the shape {spec.shape[1:]} of "
                    "its result depends on the data."
                )
        self._met(layer)
        return FoldedCall(
            layer.display_name(),
            function,
            tuple(v.kind for v in values),
            tuple(self.table.class_of(s.shape[1:], s.dtype) for s in leaves),
            structure[0],
        )

    # --- ops ------------------------------------------------------------------------------------

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Structure:
        """Record a call of an op, or compute it at once where it only reads given data."""
        sources = [a if isinstance(a, Variable) else None for a in args]
        deferred = [type(a) is Tensor and type(a.value) is Deferred for a in args]
        if not any(deferred) and not any(v is not None for v in sources):
            with using_engine(None):
                return op([*args], **attrs) if op.variadic else op(*args, **attrs)
        tensors, attrs = prepare(op, args, attrs)
        key: list[Any] = [op, *((k, type(v), v) for k, v in attrs.items())]
        values: list[Deferred] = []
        fixed: list[Any] = []
        for tensor, source in zip(tensors, sources):
            if source is not None:
                key.append((source, tensor.dtype))
                fixed.append((source, tensor.dtype))
            else:
                value = self.value_of(tensor)
                key.append(value.kind)
                values.append(value)
                fixed.append(None)
        if not values:  # only variables
            values.append(self.record.leaf(self.table.class_of((), "int32"), 0))
        names = tuple(key)
        number = self.table.find(names)
        if number is None:
            number = self.table.add(names, lambda: self._op_kind(op, attrs, fixed, values, tensors))
        results = self.record.call(number, values)
        return results[0] if op.outputs == 1 else tuple(results)

    def _op_kind(
        self, op: Op, attrs: dict[str, Any], fixed: Sequence[Any], values: Sequence[Deferred],
        tensors: Sequence[Tensor],
    ) -> FoldedCall:  # fmt: skip
        """Return a new kind of call of an op: it is applied to all rows by its batching rule."""

        def one(*rows: Tensor) -> Structure:
            left = iter(rows)
            given = [next(left) if f is None else _fixed(f) for f in fixed]
            return op(given, **attrs) if op.variadic else op(*given, **attrs)

        def function(given: Sequence[Tensor]) -> list[Tensor]:
            result = vmap(one)(*given)
            return [result] if op.outputs == 1 else list(result)

        specs = op.shape(*(Spec(t.shape, t.dtype) for t in tensors), **attrs)
        leaves = (specs,) if op.outputs == 1 else tuple(specs)
        return FoldedCall(
            f"ops.{op.name}",
            function,
            tuple(v.kind for v in values),
            tuple(self.table.class_of(s.shape, s.dtype) for s in leaves),
            None,
        )

    def numbers_of(self, tensor: Tensor) -> Any:
        """Refuse to return a number that is not computed yet."""
        raise NumberAskedError(
            f"Python asked for the value of a tensor of shape {tensor.shape} in a folded function"
            f"{at_user_line()} (bool(), float(), if, while, .numpy()). Its calls run later, for "
            "all structures at once: decide by the structure only, use ops.where, or run "
            "`one_by_one`, where values are known."
        )


def _fixed(source: tuple[Variable, str]) -> Tensor:
    variable, dtype = source
    return variable.value if variable.dtype == dtype else ops.cast(variable, dtype)


@contextmanager
def outside(training: bool | None = None) -> Iterator[None]:
    """A context in which layers and ops run as they do outside of folded functions."""
    engine = nullcontext() if context.recorder is None else using_engine(None)
    with (
        override(context, "recorder", None), override(context, "root", NOWHERE),
        override(context, "training", training), engine,
    ):  # fmt: skip
        yield
