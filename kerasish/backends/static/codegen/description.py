"""The description of a fused loop: a `Kernel` is structure; sizes and addresses are arguments.

A kernel loops over R rows and C columns. R is the product of `rank` outer sizes (usually one), C
the innermost size. Every value has a level: "scalar" (one number), "row" (one per row), "column"
(one per column), "element" (one per row and column). The body is a list of nodes in SSA form: value
ids 0 .. n-1 are the inputs, then one id per node. Reductions change the level:

- `row_sum row_max row_min row_prod row_argmax row_argmin`: element -> row. A value may use a
  reduced one: the code generator divides the row into phases (softmax: maximum, sum of
  exponentials, quotient) and keeps values that are expensive to recompute in a scratch row.
- `column_sum column_max column_min column_prod`: element -> column, over all rows of a group.
  `rows` is split into `groups` equal runs (usually 1): a mean over time is a column_sum with one
  group per sample.
- `all_sum all_max all_min all_prod`: anything -> scalar, over everything.
- `broadcast`: anything -> element. An output is written once per number of its level, and a sum
  adds one term per number of its level, so a value that varies only along rows must be broadcast
  first.

Nodes after column_ and all_ reductions (running means, square roots, ...) run after the last row.
They may use scalars and columns only. Sums run in blocks, per thread, and the threads' parts are
added in order: a result depends on the number of threads, but not on timing.

Example, softmax along the last axis:

    k = KernelBuilder()
    x = k.input("float32")
    e = k.op("exp", x - k.op("row_max", x))
    k.output(e / k.op("row_sum", e))
    kernel = k.build()

Bias gradient with the activation's gradient, g = dy * (y > 0), db = sum of g over rows:

    k = KernelBuilder()
    dy, y = k.input("float32"), k.input("float32")
    g = k.op("select", y > 0.0, dy, 0.0)
    k.output(g)
    k.output(k.op("column_sum", g))

Adam over all variables in one record (segments: each row is one variable, of its own length):

    k = KernelBuilder(segments=True)
    p, g, m, v = (k.input("float32") for _ in range(4))
    rate = k.input("float32", level="scalar")          # already bias-corrected, in memory
    m2 = m + (g - m) * 0.1
    v2 = v + (g * g - v) * 0.001
    for new, old in ((p - rate * m2 / (k.op("sqrt", v2) + 1e-7), p), (m2, m), (v2, v)):
        k.output(new, in_place=old)

Dropout with the mask drawn in place (key and counter are scalars in memory):

    k = KernelBuilder()
    x = k.input("float32")
    words = [k.input("uint32", level="scalar") for _ in range(4)]  # key 0 and 1, counter 2 and 3
    keep = k.op("uniform", k.op("random_bits", *words, aligned=True)) >= rate
    k.output(k.op("select", keep, x * (1 / (1 - rate)), 0.0))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Union

from kerasish.backends.static.codegen.loop_ops import (
    ALL_REDUCTIONS,
    C_FUNCTIONS,
    COLUMN_REDUCTIONS,
    LOOP_OPS,
    REDUCTIONS,
    ROW_REDUCTIONS,
)
from kerasish.backends.static.codegen.loop_ops import (
    SIZES as SIZES,
)
from kerasish.backends.static.machine.assembly import STORED, computed, is_float
from kerasish.errors import UnknownNameError

LEVELS = ("scalar", "row", "column", "element")

ALIASES = {"where": "select", "round": "rint", "remainder": "mod", "invert": "bitwise_not"}


class Input(NamedTuple):
    """One operand that is read.

    Args:
        dtype: the dtype in memory.
        level: "element", "row", "column" or "scalar": the axes it varies along.
        strided: whether its columns have a stride that is known at run time (slower: lane by lane).
        gather: the id of a row-level integer input; row r is read at row gather[r]. Negative
            indices count from the end; one outside [-limit, limit) makes the record fail with
            status 2.
    """

    dtype: str
    level: str = "element"
    strided: bool = False
    gather: int | None = None


class LoopNode(NamedTuple):
    """One op: `args` are ids of earlier values, `attrs` sorted (name, value) pairs."""

    op: str
    args: tuple[int, ...]
    dtype: str
    attrs: tuple[tuple[str, Any], ...] = ()

    def attr(self, name: str, default: Any = None) -> Any:
        return dict(self.attrs).get(name, default)


class Output(NamedTuple):
    """One value that is written.

    Args:
        value: its id. dtype: the dtype in memory. strided: as for `Input`.
        in_place: the id of the input whose memory it shares, element by element; else None.
        scatter: the id of a row-level integer input; row r is written at row scatter[r].
        combine: "set", or "add" to the memory's content (with `scatter`, rows are added in order).
    """

    value: int
    dtype: str
    strided: bool = False
    in_place: int | None = None
    scatter: int | None = None
    combine: str = "set"


@dataclass(frozen=True)
class Kernel:
    """The structure of a fused loop; equal kernels share one piece of machine code.

    Args:
        rank: the number of outer sizes (1 unless strides do not collapse).
        segments: whether each row is a piece of memory with its own address and length (see
            `arguments.segment_table`).
        lanes: the most values per vector; 0 lets the generator choose.
    """

    inputs: tuple[Input, ...]
    nodes: tuple[LoopNode, ...]
    outputs: tuple[Output, ...]
    rank: int = 1
    segments: bool = False
    lanes: int = 0
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        # Kernels are used as keys; the hash of a long body is expensive, so it is cached.
        parts = (self.inputs, self.nodes, self.outputs, self.rank, self.segments, self.lanes)
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Hashes of strings differ between processes, so the hash is recomputed when unpickled.
        parts = (self.inputs, self.nodes, self.outputs, self.rank, self.segments, self.lanes)
        return Kernel, parts

    def dtype_of(self, value: int) -> str:
        """The dtype in which a value is computed."""
        n = len(self.inputs)
        return computed(self.inputs[value].dtype if value < n else self.nodes[value - n].dtype)


class Levels:
    """The level, stage and phase of each value, derived from a kernel's structure."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.level = [i.level for i in kernel.inputs]
        self.after = [False] * len(kernel.inputs)
        self.phase = [0] * len(kernel.inputs)
        for node in kernel.nodes:
            self._add(node)

    def _add(self, node: LoopNode) -> None:
        args = node.args
        level = join_levels([self.level[a] for a in args])
        phase = max((self.phase[a] for a in args), default=0)
        after = any(self.after[a] for a in args)
        if node.op in ROW_REDUCTIONS:
            phase += self.level[args[0]] in ("element", "column")
            level = "row"
        elif node.op in COLUMN_REDUCTIONS:
            level, after = "column", True
        elif node.op in ALL_REDUCTIONS:
            level, after = "scalar", True
        elif node.op in ("random_bits", "broadcast"):
            level = "element"
        elif node.op == "column_index":
            level = "column"
        elif node.op in ("row_index", "outer_index"):
            level = "row"
        elif node.op == "pick":
            level, phase = "row", self.phase[args[1]]
        if after and level in ("row", "element"):
            raise ValueError(f"{node}: only scalars and columns can follow column_/all_ reductions")
        if after and node.op in REDUCTIONS and any(self.after[a] for a in args):
            raise ValueError(f"{node}: a reduction cannot follow a column_/all_ reduction")
        if after and any(self._is_strided(a) for a in args):
            raise ValueError(f"{node}: values after the last row are read contiguously")
        self.level.append(level)
        self.after.append(after)
        self.phase.append(phase)

    def _is_strided(self, value: int) -> bool:
        inputs = self.kernel.inputs
        return value < len(inputs) and inputs[value].strided and self.level[value] == "column"


def join_levels(levels: list[str]) -> str:
    """The level of a value computed from values of these levels."""
    if "element" in levels or ("row" in levels and "column" in levels):
        return "element"
    if "row" in levels:
        return "row"
    return "column" if "column" in levels else "scalar"


def verify(kernel: Kernel) -> Levels:
    """Check a kernel's structure and return its levels.

    Raises:
        ValueError: an id is out of range, a dtype or level is unknown, or a level does not fit.
    """
    known = len(kernel.inputs)
    for i in kernel.inputs:
        if i.dtype not in STORED:
            raise UnknownNameError.of("dtype", i.dtype, STORED)
        if i.level not in LEVELS:
            raise UnknownNameError.of("level", i.level, LEVELS)
    for place, node in enumerate(kernel.nodes):
        if node.op not in LOOP_OPS:
            raise UnknownNameError.of("loop op", node.op, LOOP_OPS)
        if node.op == "c_function" and node.attr("function") not in C_FUNCTIONS:
            raise UnknownNameError.of("C function", node.attr("function"), C_FUNCTIONS)
        if any(not 0 <= a < known + place for a in node.args):
            raise ValueError(f"node {known + place} {node}: arguments must be earlier values")
    levels = Levels(kernel)
    for o in kernel.outputs:
        if not 0 <= o.value < known + len(kernel.nodes):
            raise ValueError(f"{o}: no such value")
        if o.scatter is not None and levels.level[o.value] not in ("element", "column"):
            raise ValueError(f"{o}: only element values can be scattered")
        if o.strided and levels.after[o.value]:
            raise ValueError(f"{o}: values after the last row are written contiguously")
    if kernel.segments and any(levels.level[v] == "column" for v in range(len(levels.level))):
        raise ValueError("segments have no columns in common")
    return levels


Operand = Union["Symbol", int, float, bool]


class Symbol:
    """A value of a kernel that is being built; operators create nodes."""

    def __init__(self, builder: KernelBuilder, number: int, dtype: str) -> None:
        self.builder, self.number, self.dtype = builder, number, dtype

    def __add__(self, other: Operand) -> Symbol:
        return self.builder.op("add", self, other)

    def __radd__(self, other: Operand) -> Symbol:
        return self.builder.op("add", other, self)

    def __sub__(self, other: Operand) -> Symbol:
        return self.builder.op("subtract", self, other)

    def __rsub__(self, other: Operand) -> Symbol:
        return self.builder.op("subtract", other, self)

    def __mul__(self, other: Operand) -> Symbol:
        return self.builder.op("multiply", self, other)

    def __rmul__(self, other: Operand) -> Symbol:
        return self.builder.op("multiply", other, self)

    def __truediv__(self, other: Operand) -> Symbol:
        return self.builder.op("divide", self, other)

    def __rtruediv__(self, other: Operand) -> Symbol:
        return self.builder.op("divide", other, self)

    def __neg__(self) -> Symbol:
        return self.builder.op("negative", self)

    def __lt__(self, other: Operand) -> Symbol:
        return self.builder.op("less", self, other)

    def __le__(self, other: Operand) -> Symbol:
        return self.builder.op("less_equal", self, other)

    def __gt__(self, other: Operand) -> Symbol:
        return self.builder.op("greater", self, other)

    def __ge__(self, other: Operand) -> Symbol:
        return self.builder.op("greater_equal", self, other)


class KernelBuilder:
    """Builds a `Kernel` step by step; equal nodes are shared.

    Args: as for `Kernel`.
    """

    def __init__(self, rank: int = 1, segments: bool = False, lanes: int = 0) -> None:
        self.rank, self.segments, self.lanes = rank, segments, lanes
        self._inputs: list[Input] = []
        self._nodes: list[LoopNode] = []
        self._outputs: list[Output] = []
        self._dtypes: list[str] = []
        self._seen: dict[LoopNode, Symbol] = {}

    def input(
        self,
        dtype: str,
        level: str = "element",
        strided: bool = False,
        gather: Symbol | None = None,
    ) -> Symbol:
        """Add an input; all inputs must be added before the first op."""
        if self._nodes:
            raise ValueError("inputs must be added before ops: their ids are 0 .. n-1")
        number = None if gather is None else gather.number
        self._inputs.append(Input(dtype, level, strided, number))
        self._dtypes.append(computed(dtype))
        return Symbol(self, len(self._inputs) - 1, computed(dtype))

    def constant(self, value: float, dtype: str) -> Symbol:
        """A constant in the code."""
        return self._node("constant", (), computed(dtype), {"value": value})

    def op(self, name: str, *args: Operand, dtype: str | None = None, **attrs: Any) -> Symbol:
        """Apply an op by its name in `kerasish.ops`; Python numbers become constants.

        Args:
            dtype: the dtype of the result, where it does not follow from the arguments (cast,
                bitcast, row_index, ...).
        """
        name = ALIASES.get(name, name)
        if name not in LOOP_OPS:
            raise UnknownNameError.of("loop op", name, LOOP_OPS)
        weak = [a.dtype for a in args if isinstance(a, Symbol)]
        if name == "select":
            weak = [a.dtype for a in args[1:] if isinstance(a, Symbol)]
        symbols = tuple(
            a if isinstance(a, Symbol) else self.constant(a, weak[0] if weak else "float32")
            for a in args
        )
        return self._node(name, symbols, dtype, attrs)

    def output(
        self,
        value: Symbol,
        dtype: str | None = None,
        strided: bool = False,
        in_place: Symbol | None = None,
        scatter: Symbol | None = None,
        combine: str = "set",
    ) -> int:
        """Add an output; return its index among the outputs."""
        self._outputs.append(
            Output(
                value.number,
                dtype or value.dtype,
                strided,
                None if in_place is None else in_place.number,
                None if scatter is None else scatter.number,
                combine,
            )
        )
        return len(self._outputs) - 1

    def build(self) -> Kernel:
        """The finished, verified kernel."""
        kernel = Kernel(
            tuple(self._inputs),
            tuple(self._nodes),
            tuple(self._outputs),
            self.rank,
            self.segments,
            self.lanes,
        )
        verify(kernel)
        return kernel

    def _node(
        self, name: str, args: tuple[Symbol, ...], dtype: str | None, attrs: dict[str, Any]
    ) -> Symbol:
        result = result_dtype(name, [a.dtype for a in args], dtype)
        pairs = tuple(sorted((k, _plain(v)) for k, v in attrs.items()))
        node = LoopNode(name, tuple(a.number for a in args), result, pairs)
        if node not in self._seen:
            self._nodes.append(node)
            self._dtypes.append(result)
            number = len(self._inputs) + len(self._nodes) - 1
            self._seen[node] = Symbol(self, number, result)
        return self._seen[node]


def _plain(value: Any) -> str | int:
    """Floats as their bits, so that -0.0 and 0.0 compare unequal, and NaN equals NaN."""
    return f"float:{value.hex()}" if isinstance(value, float) else value


def constant_value(node: LoopNode) -> float:
    """The number of a constant node."""
    value = node.attr("value")
    if isinstance(value, str):
        return float.fromhex(value.removeprefix("float:"))
    return value


def result_dtype(name: str, args: list[str], dtype: str | None) -> str:
    """The dtype of an op's result.

    Raises:
        ValueError: the arguments' dtypes differ, or do not suit the op.
    """
    about = LOOP_OPS[name]
    if about.gives == "bool":
        if not name.startswith("logical_"):  # these take numbers of any dtypes: true where not 0
            _same(name, args)
        return "bool"
    if name in ("row_argmax", "row_argmin", "column_index", "row_index", "outer_index"):
        return dtype or "int32"
    if name == "random_bits":
        return "uint32"
    if name in ("uniform", *SIZES):
        return computed(dtype or "float32")
    if name == "select":
        _same(name, args[1:])
        return args[1]
    if name == "pick":
        return args[0]
    if dtype is not None:
        return computed(dtype)
    _same(name, args)
    if about.takes == "floats" and not is_float(args[0]):
        raise ValueError(f"{name}: needs floats, got {args[0]}; cast first")
    if about.takes == "integers" and is_float(args[0]):
        raise ValueError(f"{name}: needs integers, got {args[0]}; cast first")
    return args[0]


def _same(name: str, args: list[str]) -> None:
    if len(set(args)) > 1:
        raise ValueError(f"{name}: dtypes must be equal, got {args}; cast first")
