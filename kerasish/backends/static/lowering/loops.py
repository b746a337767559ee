"""Lowers fused nodes to loop kernels: collapses axes, locates operands, maps ops to loop ops."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import arguments
from kerasish.backends.static.codegen.cost import choose_threads
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.codegen.plan import plan_loops
from kerasish.backends.static.lowering.units import Locate, Unit
from kerasish.graph.fused import FusedBody
from kerasish.graph.ir import Node, Value
from kerasish.ops import dtypes

# Numbers that are part of a kernel's structure. Others are read from memory, so that another batch
# size or learning rate needs no new code.
STRUCTURAL = frozenset((0.0, 1.0, -1.0, 2.0, 0.5, -0.5, 3.0, 4.0))


# With this number of elements or more, loops over few columns have code of their own: vectors with
# one lane per column, without masks. Columns that are the same in each row are loaded once.
OWN_CODE_FOR_COLUMNS = 1 << 15
LEAST_LANES, MOST_LANES = 4, 32


class NotALoop(Exception):  # noqa: N818 (a signal)
    """A fused node has a form that loop kernels do not express."""


class LoopOperand(NamedTuple):
    """A value as a loop reads it: strides along the axes of the frame, and the first element."""

    value: Value
    strides: tuple[int, ...]
    offset: int = 0


class Axes(NamedTuple):
    """Collapsed axes of a loop: outer sizes, columns, and the division of rows into groups."""

    outer: tuple[int, ...]
    columns: int
    groups: int


def _strides(value: Value, dims: Sequence[Any], rank: int) -> tuple[int, ...]:
    """Return the stride, in elements, along each axis of the frame."""
    result = [0] * rank
    step = 1
    for size, d in zip(reversed(value.shape), reversed(tuple(dims))):
        if d is not None and size != 1:
            result[d] = step
        step *= size
    return tuple(result)


def _collapse(
    frame: Sequence[int], strides: list[tuple[int, ...]], stops: set[int]
) -> tuple[list[int], list[list[int]], list[int]]:
    """Merge adjacent axes where every operand allows it, never across `stops`.

    Returns (sizes, strides of each operand, first frame axis of each merged axis).
    """
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    starts: list[int] = []
    blocked = True
    for axis, size in enumerate(frame):
        blocked = blocked or axis in stops
        if size == 1:
            continue
        joins = bool(sizes) and not blocked
        if joins:
            for own, operand in zip(steps, strides):
                if own[-1] != operand[axis] * size:
                    joins = False
        if joins:
            sizes[-1] *= size
            for own, operand in zip(steps, strides):
                own[-1] = operand[axis]
        else:
            sizes.append(size)
            starts.append(axis)
            for own, operand in zip(steps, strides):
                own.append(operand[axis])
        blocked = False
    return sizes, steps, starts


class Recipe(NamedTuple):
    """Everything a loop's kernel is built from: equal recipes yield equal kernels.

    Attributes:
        rank: the number of outer sizes.
        lanes: the most values per vector, see `Kernel`.
        inputs: (dtype, level, strided) of each operand.
        steps: (op, dtype of its result, arguments, attributes of composed native code) in order;
            an argument is ("input", number), ("step", number of the step) or ("number", its text,
            its value, dtype).
        outputs: (number of the step, dtype, strided, number of the input whose memory it uses).
    """

    rank: int
    lanes: int
    inputs: tuple[tuple[str, str, bool], ...]
    steps: tuple[tuple[Any, str, tuple[Any, ...], tuple[tuple[str, Any], ...]], ...]
    outputs: tuple[tuple[int, str, bool, int | None], ...]


@functools.lru_cache(maxsize=4096)
def build_kernel(recipe: Recipe) -> Kernel:
    """Return the kernel of a recipe.

    Raises:
        NotALoop: loop kernels do not express it.
    """
    k = KernelBuilder(rank=recipe.rank, lanes=recipe.lanes)
    symbols = [k.input(*parts) for parts in recipe.inputs]
    results: list[Any] = []

    def find(argument: Any) -> Any:
        kind, *what = argument
        if kind == "input":
            return symbols[what[0]]
        return results[what[0]] if kind == "step" else _literal_symbol(k, what[1], what[2])

    for name, dtype, arguments_, attrs in recipe.steps:
        results.append(_apply(k, name, dtype, [find(a) for a in arguments_], dict(attrs)))
    for value, dtype, strided, shared in recipe.outputs:
        in_place = None if shared is None else symbols[shared]
        k.output(results[value], dtype, strided=strided, in_place=in_place)
    try:
        return k.build()
    except ValueError as error:
        raise NotALoop(str(error)) from error


def _apply(k: KernelBuilder, name: Any, dtype: str, args: list[Any], attrs: dict[str, Any]) -> Any:
    try:
        if callable(name):
            return name(k, *args, **attrs)
        if name == "reshape":
            return args[0]
        if name == "cast":
            return _cast(k, args[0], dtype)
        if name in ("bits", "aligned_bits"):
            zero = k.constant(0, "uint32")
            return k.op("random_bits", args[0], zero, args[1], zero, aligned=name != "bits")
        if name.endswith(("_all", "_any")):
            kind = name.replace("_all", "_min").replace("_any", "_max")
            true = args[0] if args[0].dtype == "bool" else k.op("not_equal", args[0], 0)
            return k.op("not_equal", k.op(kind, _cast(k, true, "int32")), 0)
        if name in ("row_argmax", "row_argmin"):
            return k.op(name, args[0])
        if name.startswith(("row_", "column_", "all_")):
            return k.op(name, _cast(k, args[0], dtype))
        if name == "nextafter" and dtype in ("bfloat16", "float16"):
            return k.op(name, *args, stored=dtype)  # adjacent numbers of the stored dtype
        return k.op(name, *args)
    except (ValueError, KeyError) as error:
        raise NotALoop(f"{name}: {error}") from error


class LoopUnit(Unit):
    """A fused node as one record."""

    def __init__(self, node: Node, numbers: dict[Value, Any]) -> None:
        self.body: FusedBody = node.attrs["body"]
        self._numbers = numbers
        self._order: list[LoopOperand] = []  # operands read from memory
        self._literals: dict[Value, Any] = {}
        self._place_operands()
        self._shared: dict[Value, Value] = {}
        reads = list(dict.fromkeys(o.value for o in self._order))
        super().__init__("loop " + " ".join(n.op.name for n in self.body.graph.nodes), reads,
                         node.outputs)  # fmt: skip
        self._kernel: Kernel | None = None
        self._apart: Recipe | None = None
        self.threads = choose_threads(
            self.kernel, math.prod(self.axes.outer), self.axes.columns, native.get_threads()
        )
        self._measure_scratch()

    def __getstate__(self) -> dict[str, Any]:
        # A recipe may hold functions, and is needed only for another kernel.
        return {**vars(self), "_apart": None}

    def may_fail(self) -> bool:
        """Return whether an element that is picked by its index may not exist."""
        return bool(plan_loops(self.kernel).picks)

    # --- operands -----------------------------------------------------------------------------

    def _place_operands(self) -> None:
        body = self.body
        frame, rank = body.frame, len(body.frame)
        inside = set(body.dims)
        operands: dict[LoopOperand, int] = {}
        self._place_of: dict[tuple[int, int], int] = {}  # (node, input) -> number of its operand
        for number, node in enumerate(body.graph.nodes):
            for i, v in enumerate(node.inputs):
                if v in inside:
                    continue
                if node.op.name == "random_bits":
                    for word in (0, 1):
                        operand = LoopOperand(v, (0,) * rank, word)
                        self._place_of[number, word] = operands.setdefault(operand, len(operands))
                    continue
                literal = self._literal(v)
                if literal is not None:
                    self._literals[v] = literal
                else:
                    operand = LoopOperand(v, _strides(v, body.reads[number, i], rank))
                    self._place_of[number, i] = operands.setdefault(operand, len(operands))
        order = list(operands)
        outputs = [LoopOperand(v, _strides(v, body.dims[v], rank)) for v in body.graph.outputs]
        split = body.split if body.split is not None else 0
        stops = {split, body.groups} if body.split is not None else set()
        sizes, steps, starts = _collapse(frame, [o.strides for o in (*order, *outputs)], stops)
        self._fit(sizes, steps, starts, frame)
        self._order = order
        self._steps = steps
        self._levels = [self._level(i) for i in range(len(order))]

    def _fit(self, sizes: list[int], steps: Any, starts: list[int], frame: Any) -> None:
        body = self.body
        if body.split is None:
            columns = sizes.pop() if sizes else 1
            last = [s.pop() if s else 0 for s in steps]
        else:
            behind = [i for i, a in enumerate(starts) if a >= body.split]
            if len(behind) > 1:
                raise NotALoop("columns are not adjacent")
            columns = sizes.pop() if behind else 1
            last = [s.pop() if behind else 0 for s in steps]
        groups = math.prod(frame[: body.groups]) if body.groups else 1
        self.axes = Axes(tuple(sizes) or (1,), columns, groups)
        if not sizes:
            for s in steps:
                s.append(0)
        self._column_steps = last

    def _literal(self, v: Value) -> Any:
        array = self._numbers.get(v)
        if array is None or v.size != 1:
            return None
        number = np.asarray(array).reshape(-1)[0].item()
        if isinstance(number, bool) or float(number) in STRUCTURAL:
            return number
        return None

    def _level(self, index: int) -> str:
        outer, column = self._steps[index], self._column_steps[index]
        varies = any(outer)
        if self.axes.columns == 1 and not varies and math.prod(self.axes.outer) == 1:
            return "element" if self._is_single() else "scalar"
        if column:
            return "element" if varies or math.prod(self.axes.outer) == 1 else "column"
        return "row" if varies else "scalar"

    def _is_single(self) -> bool:
        """Return whether the loop runs over one element: all values are element level then."""
        return math.prod(self.body.frame) == 1

    # --- kernel -------------------------------------------------------------------------------

    @property
    def kernel(self) -> Kernel:
        """The loop's description."""
        if self._kernel is None:
            self._kernel = build_kernel(self._recipe())
            self._check_outputs(self._kernel)
        return self._kernel

    def _check_outputs(self, kernel: Kernel) -> None:
        """Check that the loop writes every element of every output.

        Raises:
            AssertionError: it does not; the kernel would compute wrong numbers.
        """
        rows, columns, groups = math.prod(self.axes.outer), self.axes.columns, self.axes.groups
        levels = plan_loops(kernel).levels
        counts = {"element": rows * columns, "row": rows, "scalar": 1}
        for value, output in zip(self.body.graph.outputs, kernel.outputs, strict=True):
            level = levels.level[output.value]
            runs = groups if levels.after[output.value] else 1
            written = runs * columns if level == "column" else counts[level]
            if written != value.size:
                raise AssertionError(f"{self.name}: writes {written} of {value.size} of {value!r}")

    def _recipe(self) -> Recipe:
        """Return everything that the kernel depends on."""
        apart = self._apart = self._apart or self._recipe_apart()
        if not self._shared:
            return apart
        place: dict[Value | None, int] = {
            o.value: i for i, o in reversed([*enumerate(self._order)])
        }
        return apart._replace(outputs=tuple([
            (*output[:3], place.get(self._shared.get(v)))
            for v, output in zip(self.body.graph.outputs, apart.outputs, strict=True)
        ]))  # fmt: skip

    def _recipe_apart(self) -> Recipe:
        """Return the recipe of a kernel that writes apart from what it reads."""
        body, place_of = self.body, self._place_of
        inputs = []
        for i, operand in enumerate(self._order):
            level = self._levels[i]
            strided = level in ("element", "column") and self._column_steps[i] not in (0, 1)
            if level == "element" and self._column_steps[i] == 0 and self.axes.columns > 1:
                raise NotALoop("an element operand repeats along columns")
            inputs.append((operand.value.dtype, level, strided))
        results: dict[Value, int] = {}
        steps = []
        for number, node in enumerate(body.graph.nodes):
            args: list[Any] = []
            name: Any = node.op.name
            if name == "random_bits":
                # The seed and the counter are read from memory.
                args = [("input", place_of[number, word]) for word in (0, 1)]
                name = self._draw_name()
            else:
                for i, v in enumerate(node.inputs):
                    if v in results:
                        args.append(("step", results[v]))
                    elif v in self._literals:
                        literal = self._literals[v]
                        args.append(("number", repr(literal), literal, v.dtype))
                    else:
                        args.append(("input", place_of[number, i]))
                if node.op.reduction:
                    name = self._reduction_name(node)
                elif node.op.view:
                    name = self._broadcast_name(number, node)
                else:
                    name = node.op.native
            attrs = tuple(sorted(node.attrs.items())) if callable(name) else ()
            steps.append((name, node.out.dtype, tuple(args), attrs))
            results[node.out] = number
        outputs = []
        for j, v in enumerate(body.graph.outputs):
            index = len(self._order) + j
            strided = self._column_steps[index] not in (0, 1)
            outputs.append((results[v], v.dtype, strided, None))
        lanes = self._lanes()
        return Recipe(len(self.axes.outer), lanes, tuple(inputs), tuple(steps), tuple(outputs))

    def _lanes(self) -> int:
        """Return the smallest vector that holds a row of a large loop; 0: any.

        The number of lanes changes no finite result: lanes beyond the last column are neutral.
        """
        rows, columns = math.prod(self.axes.outer), self.axes.columns
        strided = any(step not in (0, 1) for step in self._column_steps)
        if rows == 1 or rows * columns < OWN_CODE_FOR_COLUMNS or strided:
            return 0
        lanes = max(LEAST_LANES, 1 << (columns - 1).bit_length())
        return lanes if lanes <= MOST_LANES else 0

    def _draw_name(self) -> str:
        aligned = math.prod(self.axes.outer) == 1 or self.axes.columns % 4 == 0
        return "aligned_bits" if aligned else "bits"

    def _broadcast_name(self, number: int, node: Node) -> str:
        """Return "reshape" where the result varies along no more axes than the input."""
        read, written = (
            [d for d in dims if d is not None]
            for dims in (self.body.reads[number, 0], self.body.dims[node.out])
        )
        return "reshape" if read == written else "broadcast"

    def _reduction_name(self, node: Node) -> str:
        what = node.op.reduction
        if what.startswith("arg"):
            return f"row_{what}"
        frame, axes = self.body.frame, node.attrs["axis"]
        real = [i for i in axes if frame[i] != 1]
        split = self.body.split
        if split is not None and min(real) >= split > 0:
            return f"row_{what}"
        if len(real) == sum(s != 1 for s in frame):
            return f"all_{what}"
        return f"column_{what}"

    # --- memory -------------------------------------------------------------------------------

    def may_share(self, written: Value, read: Value) -> bool:
        """Return whether each read of `read` reads exactly the element that is written."""
        if written.shape != read.shape or written.dtype != read.dtype:
            return False
        index = len(self._order) + list(self.body.graph.outputs).index(written)
        # Rows are written in the last pass over them, but picked elements are read later.
        if _reduces(self.body) and plan_loops(self.kernel).picks:
            return False
        if math.prod(self.axes.outer) * self.axes.columns != written.size:
            return False
        strides = (self._steps[index], self._column_steps[index])
        places = [i for i, o in enumerate(self._order) if o.value is read]
        read_strides = [(self._steps[i], self._column_steps[i]) for i in places]
        return bool(places) and all(read == strides for read in read_strides)

    def share(self, written: Value, read: Value) -> None:
        """Let `written` use the memory of `read`."""
        self._shared[written] = read
        self._kernel = None
        self._measure_scratch()

    def write_apart(self, written: Value) -> None:
        """Take `share` back."""
        del self._shared[written]
        self._kernel = None
        self._measure_scratch()

    def _measure_scratch(self) -> None:
        axes = self.axes
        self.scratch = arguments.scratch_size(self.kernel, axes.columns, axes.groups, self.threads)

    def in_place_of(self, written: Value) -> Value | None:
        """Return the value whose memory `written` uses."""
        return self._shared.get(written)

    def kernels(self) -> list[Any]:
        """Return the one kernel."""
        return [self.kernel]

    def values(self) -> list[LoopOperand]:
        """Return what the loop reads, then what it writes."""
        return [*self._order, *(LoopOperand(v, ()) for v in self.body.graph.outputs)]

    def operands(self, locate: Locate) -> list[arguments.Operand]:
        """Return the place of each input and output."""
        results = []
        for o, steps, column in zip(self.values(), self._steps, self._column_steps, strict=True):
            at = locate(o.value).address + o.offset * dtypes.array_dtype(o.value.dtype).itemsize
            results.append(arguments.Operand(at, tuple(steps), column or 1))
        return results

    def records(self, locate: Locate) -> list[Record]:
        """Return the record of the loop."""
        scratch = locate(("scratch", self)).address if self.scratch else 0
        block = arguments.pack(
            self.kernel,
            self.operands(locate),
            table=load_runtime().table,
            columns=self.axes.columns,
            sizes=self.axes.outer,
            groups=self.axes.groups,
            threads=self.threads,
            scratch=scratch,
        )
        return [Record(compile_one(self.kernel), block, self.name)]

    # --- merging updates of many variables --------------------------------------------------------

    def segment_key(self) -> Any:
        """Return a key that is equal for units that can become segments of one record, or None.

        Such units compute the same body over contiguous arrays, with the same scalars from memory.
        """
        if len(self.axes.outer) != 1 or self.axes.outer[0] != 1 or self._is_single():
            return None
        levels = self._levels
        if any(level not in ("element", "scalar") for level in levels):
            return None
        if any(s != 1 for i, s in enumerate(self._column_steps) if i >= len(levels)):
            return None
        if _reduces(self.body):
            return None
        scalars = tuple(o for o, level in zip(self._order, levels) if level == "scalar")
        return (self.kernel, scalars)


def _reduces(body: FusedBody) -> bool:
    return any(n.op.reduction for n in body.graph.nodes)


def _literal_symbol(k: KernelBuilder, number: Any, dtype: str) -> Any:
    if dtypes.is_float(dtype):
        return k.constant(float(number), dtype)
    return k.constant(bool(number) if dtype == "bool" else int(number), dtype)


def _cast(k: KernelBuilder, x: Any, dtype: str) -> Any:
    target = "float32" if dtype in ("bfloat16", "float16") else dtype
    return x if x.dtype == target else k.op("cast", x, dtype=target)
