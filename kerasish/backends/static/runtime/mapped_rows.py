"""The loops that compute rows of a batch by a formula while they gather them."""

from __future__ import annotations

import functools
import math
import operator

from kerasish.backends.static.codegen.arguments import Operand
from kerasish.backends.static.codegen.description import Kernel, KernelBuilder, Symbol
from kerasish.row_formulas import RowFormula


def mapped_kernel(formula: RowFormula) -> tuple[Kernel, list[Operand], bool]:
    """Return a loop that gathers rows and computes their formula, and what it reads.

    Its first input holds the numbers of the rows, its first output the results. The second output
    is 0 if all floats on the way are finite, else NaN; there is none where there are no floats.

    Returns:
        The kernel, its inputs from the second one on, and whether there is a second output.
    """
    k = KernelBuilder()
    index = k.input("int64", level="row")
    operands: list[Operand] = []
    known: dict[int, Symbol] = {}
    floats: list[Symbol] = []

    def leaf(part: RowFormula) -> None:
        content = part.content
        if id(content) in known:
            return
        if part.op == "input":
            symbol = k.input(content.dtype.name, gather=index)
            columns = math.prod(content.shape[1:])
            at = Operand(content.ctypes.data, (columns,), limit=content.shape[0])
        else:
            symbol = k.input(content.dtype.name, level="column" if content.ndim else "scalar")
            at = Operand(content.ctypes.data, (0,))
        known[id(content)] = symbol
        operands.append(at)

    formula.fold(leaf, lambda part, parts: None)  # inputs come before operations

    def node(part: RowFormula, parts: list[Symbol]) -> Symbol:
        dtype = part.dtype.name
        symbol = k.op(part.op, *parts, dtype=dtype if part.op == "cast" else None)
        if part.dtype.kind == "f":
            floats.append(symbol)
        return symbol

    result = formula.fold(lambda part: known[id(part.content)], node)
    if not formula.args:
        result = k.op("stop_gradient", result)
    k.output(result, formula.dtype.name)
    if floats:
        zeros = [k.op("cast", x - x, dtype="float64") for x in floats]
        k.output(k.op("all_sum", functools.reduce(operator.add, zeros)), "float64")
    return k.build(), operands, bool(floats)
