"""CUDA code generated from an optimizer's formula: `update.cuh` calls it for each element.

The text depends on the formula, not on the numbers in it: optimizers that differ only in their
settings share one compiled kernel.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasish.backends.eager.cuda.kernels import GENERATED, text_of
from kerasish.backends.eager.update_program import UpdateProgram
from kerasish.graph.ir import Node, Value

MOST_BYTES = 3584  # of a table: 4 KB of arguments, less the other arguments
MOST = 40  # tensors per launch, at most
TYPES = {"float32": "float", "float64": "double", "int32": "int", "int64": "i64", "bool": "bool"}
# Loop op (the trait `native`) -> C on floats, and on integers.
FLOATS = {
    "add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "{0} * {1}", "divide": "{0} / {1}",
    "negative": "-{0}", "square": "{0} * {0}", "reciprocal": "1.0f / {0}", "sqrt": "sqrtf({0})",
    "rsqrt": "1.0f / sqrtf({0})", "power": "powf({0}, {1})", "absolute": "fabsf({0})",
    "exp": "expf({0})", "log": "logf({0})", "tanh": "tanhf({0})",
    # NaN if either is NaN.
    "maximum": "{0} > {1} || {0} != {0} ? {0} : {1}",
    "minimum": "{0} < {1} || {0} != {0} ? {0} : {1}",
    "sign": "{0} > 0.0f ? 1.0f : {0} < 0.0f ? -1.0f : {0}",
}  # fmt: skip
FUSED_FUNCTIONS = {
    "add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "{0} * {1}",
    "floor_divide": "{0} / {1} - ({0} % {1} != 0 && ({0} < 0) != ({1} < 0))",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class UpdateSource:
    """A compiled formula.

    Attributes:
        program: the source of the code.
        name: the name of the source for `kernels.launch`.
        kernel: the name of the kernel.
        table: NumPy's dtype of the kernel's table.
        most: the number of tensors in a table.
        constants: the numbers that the table holds by value.
    """

    program: UpdateProgram
    name: str
    kernel: str
    table: np.dtype[Any]
    most: int
    constants: tuple[float, ...]


def source_of(program: UpdateProgram, formula_name: str) -> UpdateSource | None:
    """Return the CUDA code of a program; None if no C is known for it.

    Args:
        program: of a float32 formula.
        formula_name: part of the kernel's name.
    """
    arrays = len(program.elements) + len(program.outputs)
    writer = _Writer(program)
    if not writer.write():
        return None
    count = -(-max(len(writer.constants), 1) // 2) * 2  # even: the table's size is a multiple of 8
    numbers = max(len(program.numbers), 1)
    fixed = 8 * numbers + 4 * count + 8
    most = min(MOST, (MOST_BYTES - fixed) // (8 * arrays + 16) // 2 * 2)
    sizes = {
        "ARRAYS": arrays, "INPUTS": len(program.elements), "OUTPUTS": len(program.outputs),
        "MOST": most, "CONSTANTS": count, "NUMBERS": numbers, "SHARES": max(len(writer.shares), 1),
    }  # fmt: skip
    kernel = f"{re.sub('[^a-z0-9_]', '', formula_name.lower())}_update"
    text = "\n".join([
        text_of("prelude.cuh"),
        *(f"#define {name} {size}" for name, size in sizes.items()),
        text_of("table.cuh"),
        writer.text(),
        text_of("update.cuh").replace("NAME_update", kernel),
    ])  # fmt: skip
    name = f"{kernel}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    GENERATED[name] = text
    table = table_of(arrays, numbers, count, most)
    return UpdateSource(program, name, kernel, table, most, tuple(writer.constants))


def table_of(arrays: int, numbers: int, constants: int, most: int) -> np.dtype[Any]:
    """Return the dtype of `Table` in table.cuh."""
    return np.dtype(
        [("arrays", "u8", (arrays, most)), ("numbers", "u8", numbers), ("sizes", "i8", most),
         ("decays", "f4", most), ("constants", "f4", constants), ("first", "i4", most + 1),
         ("count", "i4")]
    )  # fmt: skip


class _Writer:
    """Writes a program as two C functions, `once` and `each`."""

    def __init__(self, program: UpdateProgram) -> None:
        self.program = program
        self.constants: list[float] = []
        self.shares: list[Value] = []  # numbers that elements need, computed once
        self._names: dict[Value, str] = {}
        self._once: list[str] = []
        self._each: list[str] = []

    def write(self) -> bool:
        """Write both functions; return whether C is known for all of it."""
        program = self.program
        if any(v.dtype not in TYPES for v in program.numbers):
            return False
        for i, v in enumerate(program.numbers):
            self._names[v] = f"AT({TYPES[v.dtype]}, table.numbers[{i}])[0]"
        if program.decay is not None:
            self._names[program.decay] = "decay"
        for v, number in program.constants.items():
            self._names[v] = self._constant(v, number)
        if not all(self._add(node, self._once) for node in program.once):
            return False
        self._share()
        for i, v in enumerate(program.elements):
            self._names[v] = f"x[{i}]"
        if not all(self._add(node, self._each) for node in program.each):
            return False
        self._each += [f"y[{i}] = {self._names[v]};" for i, v in enumerate(program.outputs)]
        return all(v.dtype == "float32" for v in self.shares)

    def _constant(self, value: Value, number: Any) -> str:
        if value.dtype != "float32":
            return repr(int(number))
        self.constants.append(float(number))
        return f"table.constants[{len(self.constants) - 1}]"

    def _share(self) -> None:
        """Assign places in shared memory to the numbers that elements need."""
        needed = dict.fromkeys(v for node in self.program.each for v in node.inputs)
        for v in needed:
            if v in self._names and v not in self.program.constants:
                self._once.append(f"shared[{len(self.shares)}] = {self._names[v]};")
                self._names[v] = f"common[{len(self.shares)}]"
                self.shares.append(v)

    def _add(self, node: Node, lines: list[str]) -> bool:
        inputs = [self._names[v] for v in node.inputs]
        c = _expression(node, inputs)
        if c is None:
            return False
        name = self._names[node.out] = f"t{len(self._once) + len(self._each)}"
        lines.append(f"{TYPES[node.out.dtype]} {name} = {c};")
        return True

    def text(self) -> str:
        """Return the functions' text."""
        inline = "__device__ __forceinline__ void"
        shared = "\n    ".join(self._once)
        each = "\n    ".join(self._each)
        return (
            f"template <class P>\n{inline} once(const Table& table, float decay, P shared) {{\n"
            f"    {shared}\n}}\n\n"
            f"{inline} each(\n"
            "    const Table& table, const float (&common)[SHARES], const float (&x)[INPUTS],\n"
            f"    float (&y)[OUTPUTS]) {{\n    {each}\n}}\n"
        )


def _expression(node: Node, inputs: list[str]) -> str | None:
    """Return the C of a node whose inputs have these names; None if there is none."""
    kinds = {v.dtype for v in node.inputs}
    if node.op.name == "cast" and node.out.dtype in TYPES and kinds <= TYPES.keys():
        return f"({TYPES[node.out.dtype]}){inputs[0]}"
    known: dict[str, str] = {}
    if kinds == {"float32"} and node.out.dtype == "float32":
        known = FLOATS
    elif kinds in ({"int32"}, {"int64"}) and node.out.dtype in kinds:
        known = FUSED_FUNCTIONS
    pattern = known.get(node.op.native) if isinstance(node.op.native, str) else None
    return None if pattern is None else pattern.format(*inputs)
