"""Calls of a user's function for all rows of a block at once, where this is certain to be the same.

The function is not run as it is: a copy of it is, which can reach only what was checked. Its code
may hold nothing that lasts beyond the call (no global, attribute or item of it is set, nothing
is imported, caught or yielded). The names that it reads are NumPy's functions that work on rows,
numbers, arrays (as views that cannot be written to) and other functions of the same kind, each
looked up again for each block. So a function that prints, counts, draws random numbers, asks for
the value of an array or calls anything else is called for each element, as usual.
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import math
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from kerasish import tree
from kerasish.data.elements import row_of, to_element
from kerasish.data.row_columns import columns_of, rows_to_compare, take_rows
from kerasish.data.row_functions import ATTRIBUTES, FUNCTIONS, NUMPY
from kerasish.data.row_values import NUMBERS, NotRowWise, Row, Table
from kerasish.data.selecting import call
from kerasish.engine.data.rows import RowsAhead
from kerasish.row_formulas import RowFormula
from kerasish.typing import Array

_MOST_FAILURES = 3
_LARGE_BYTES = 2**16  # arrays of which no copies are made in order to compare them

_OPCODES = frozenset(
    """
    BINARY_ADD BINARY_AND BINARY_FLOOR_DIVIDE BINARY_MODULO BINARY_MULTIPLY BINARY_OP BINARY_OR
    BINARY_POWER BINARY_SLICE BINARY_SUBSCR BINARY_SUBTRACT BINARY_TRUE_DIVIDE BINARY_XOR
    BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP BUILD_SLICE BUILD_STRING BUILD_TUPLE CACHE CALL
    CALL_FUNCTION CALL_FUNCTION_EX CALL_FUNCTION_KW CALL_KW CALL_METHOD COMPARE_OP CONTAINS_OP
    CONVERT_VALUE COPY COPY_FREE_VARS DELETE_FAST DICT_MERGE DICT_UPDATE DUP_TOP DUP_TOP_TWO END_FOR
    EXTENDED_ARG FORMAT_SIMPLE FORMAT_VALUE FORMAT_WITH_SPEC FOR_ITER GET_ITER IS_OP
    JUMP_ABSOLUTE JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD JUMP_IF_FALSE_OR_POP
    JUMP_IF_TRUE_OR_POP KW_NAMES LIST_APPEND LIST_EXTEND LIST_TO_TUPLE LOAD_ASSERTION_ERROR
    LOAD_ATTR LOAD_CLOSURE LOAD_CONST LOAD_DEREF LOAD_FAST LOAD_FAST_AND_CLEAR LOAD_FAST_BORROW
    LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST LOAD_GLOBAL LOAD_METHOD
    LOAD_SMALL_INT MAKE_CELL MAKE_FUNCTION MAP_ADD NOP NOT_TAKEN POP_ITER POP_JUMP_BACKWARD_IF_FALSE
    POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE
    POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE
    POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE POP_TOP PRECALL PUSH_NULL RAISE_VARARGS RESUME
    RETURN_CONST RETURN_VALUE ROT_FOUR ROT_N ROT_THREE ROT_TWO SET_FUNCTION_ATTRIBUTE STORE_DEREF
    STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST STORE_SUBSCR SWAP TO_BOOL UNARY_INVERT
    UNARY_NEGATIVE UNARY_NOT UNARY_POSITIVE UNPACK_EX UNPACK_SEQUENCE
    """.split()
) | {f"INPLACE_{name}" for name in ("ADD", "SUBTRACT", "MULTIPLY", "TRUE_DIVIDE", "FLOOR_DIVIDE",
                                    "MODULO", "AND", "OR", "XOR", "POWER")}  # fmt: skip
_SUSPENDED = (
    inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
    | inspect.CO_ITERABLE_COROUTINE
)
_BUILTINS = frozenset(
    id(getattr(builtins, name))
    for name in ("abs", "bool", "dict", "enumerate", "float", "int", "len", "list", "max", "min",
                 "range", "slice", "sum", "tuple", "zip", "ValueError", "TypeError",
                 "AssertionError", "IndexError", "KeyError", "RuntimeError")
)  # fmt: skip
_PLAIN = frozenset({int, float, bool, str, bytes, type(None), type(Ellipsis), slice})
_IS_NUMPY_2 = int(np.__version__.split(".")[0]) >= 2  # before, single numbers had dtypes by value


class _Code(NamedTuple):
    globals: frozenset[str]


@functools.lru_cache(maxsize=512)
def _examined(code: CodeType) -> _Code | None:
    """Return the global names that code reads, None where it may do what lasts."""
    if code.co_flags & _SUSPENDED:
        return None
    names: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname not in _OPCODES:
            return None
        if step.opname == "LOAD_GLOBAL":
            names.add(step.argval)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and step.argval not in ATTRIBUTES:
            return None
        elif step.opname == "STORE_DEREF" and step.argval not in code.co_cellvars:
            return None  # nonlocal
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = _examined(constant)
            if inner is None:
                return None
            names |= inner.globals
    return _Code(frozenset(names))


def _checked(value: Any, copies: dict[int, Any]) -> Any:
    """Return the replacement of a value that a function reads from outside.

    Raises:
        NotRowWise: it may change, or may change something.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if value is np:
        return NUMPY
    if value is math or id(value) in _BUILTINS:
        return value
    if kind is FunctionType and id(value) not in FUNCTIONS:
        return _copied(value, copies)
    if kind is tuple:
        return tuple([_checked(part, copies) for part in value])
    if id(value) in FUNCTIONS:
        return FUNCTIONS[id(value)]
    if kind is np.ndarray:
        if value.dtype not in NUMBERS or not value.flags.c_contiguous:
            raise NotRowWise(f"an array of {value.dtype}, or with gaps")
        view = value.view(Table)
        view.flags.writeable = False
        return view
    if isinstance(value, np.generic) and value.dtype in NUMBERS or isinstance(value, np.dtype):
        return value
    if isinstance(value, type) and issubclass(value, np.generic):
        return value
    raise NotRowWise(f"a value of type {kind.__name__}")


def _copied(function: FunctionType, copies: dict[int, Any]) -> FunctionType:
    """Return a function of the same code that reaches only checked values."""
    if id(function) in copies:
        return copies[id(function)]
    code = _examined(function.__code__)
    if code is None:
        raise NotRowWise("code that may do what lasts")
    names: dict[str, Any] = {"__builtins__": {}}
    cells = tuple([CellType() for _ in function.__closure__ or ()])
    copy = FunctionType(function.__code__, names, function.__name__, None, cells)
    copies[id(function)] = copy
    outside = function.__globals__
    for name in code.globals:
        value = outside[name] if name in outside else getattr(builtins, name, NotRowWise)
        names[name] = _checked(value, copies)
    for cell, given in zip(cells, function.__closure__ or ()):
        cell.cell_contents = _checked(given.cell_contents, copies)
    if function.__defaults__:
        copy.__defaults__ = _checked(function.__defaults__, copies)
    if function.__kwdefaults__:
        copy.__kwdefaults__ = {k: _checked(v, copies) for k, v in function.__kwdefaults__.items()}
    return copy


class RowCalls:
    """Calls a function for all rows of a block at once, or says that it cannot.

    The rows of the first block, and the first row of each block, are computed by the function
    itself too, and compared bit by bit. A function that cannot be called by rows is not tried for
    long.

    Args:
        function: of the parts of an element, as `map` takes it.

    Attributes:
        may_have_formulas: whether `formulas` may return something.

    Example:
        >>> calls = RowCalls(lambda x: x * 2)
        >>> calls(np.arange(3.0), 3)
        array([0., 2., 4.])
        >>> RowCalls(print)(np.arange(3.0), 3) is None
        True
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        possible = _IS_NUMPY_2 and type(function) is FunctionType
        self._left = _MOST_FAILURES if possible and _examined(function.__code__) else 0
        self._is_new = self._formula_is_new = True
        self.may_have_formulas = self._left > 0

    def __call__(self, block: Any, count: int) -> Any:
        """Return the block of the results, or None: then the function must be called per element.

        Args:
            block: the stacked elements.
            count: their number, at least 1.
        """
        if not self._left:
            return None
        try:
            result = self._computed(block, count)
        except Exception:  # noqa: BLE001 - calls per element raise what users should see
            self._left -= 1
            return None
        self._left = _MOST_FAILURES
        return result

    def _computed(self, block: Any, count: int) -> Any:
        blocks = call_by_rows(self._function, block, count)
        for row in range(count if self._is_new else 1):
            element = call(self._function, row_of(block, row))
            _compare(blocks, to_element(element, str), row)
        self._is_new = False
        return blocks

    def formulas(self, ahead: RowsAhead) -> RowsAhead | None:
        """Return the function's results for rows that are read next; None: call the function.

        Each column becomes `MappedRows`.

        Args:
            ahead: the rows, each an element, or batches, each an element.
        """
        if not self._left or not self.may_have_formulas:
            return None
        rows = rows_to_compare(ahead) if self._formula_is_new else ahead.order[: ahead.size or 1]
        if not len(rows) or len(rows) < ahead.size:
            return None
        try:
            columns = self._formulas(ahead, rows)
        except Exception:  # noqa: BLE001 - calls per element raise what users should see
            self.may_have_formulas = False
            return None
        self._formula_is_new = False
        return ahead._replace(columns=columns)

    def _formulas(self, ahead: RowsAhead, rows: Array) -> Any:
        """Return the columns of the results; the results for some rows are compared."""
        block, count = tree.map_structure(lambda c: take_rows(c, rows), ahead.columns), len(rows)
        if ahead.size:
            block, count = tree.map_structure(lambda part: part[None], block), 1
        result, owners = _call(self._function, block, ahead.columns)
        columns = columns_of(result, ahead.size)
        if self._formula_is_new or not ahead.size:  # to compare a batch takes longer than a row
            blocks = _as_blocks(result, count, owners)
            for row in range(count):
                element = call(self._function, row_of(block, row))
                _compare(blocks, to_element(element, str), row)
        return columns


def call_by_rows(function: Callable[..., Any], block: Any, count: int) -> Any:
    """Return the block of a function's results for all rows of a block.

    Args:
        function: of the parts of an element.
        block: the stacked elements.
        count: their number, at least 1.

    Raises:
        Exception: of any kind, if a call for all rows may differ from a call for each.
    """
    result, owners = _call(function, block)
    return _as_blocks(result, count, owners)


def _call(function: Callable[..., Any], block: Any, columns: Any = None) -> tuple[Any, list[Any]]:
    """Return a function's result for all rows of a block, and the owners of the block's memory.

    Args:
        function: of the parts of an element.
        block: the stacked elements.
        columns: the arrays or `MappedRows` that its rows are of, in the same structure, or None.
    """
    checked = _checked(function, {})
    raised = {name: "raise" for name, does in np.geterr().items() if does != "ignore"}
    if columns is not None and "under" in raised:
        raise NotRowWise("a formula that must name the numbers that underflow")
    owners: list[Any] = []
    with np.errstate(**raised):  # warnings name an element: its own call gives them
        return call(checked, _as_rows(block, owners, columns)), owners


def _as_rows(block: Any, owners: list[Any], column: Any) -> Any:
    """Return the element that represents all rows of a block; note the owner of its memory."""
    if type(block) is tuple:
        columns = [None] * len(block) if column is None else column
        return tuple([_as_rows(part, owners, c) for part, c in zip(block, columns)])
    if type(block) is dict:
        columns = dict.fromkeys(block) if column is None else column
        return {key: _as_rows(part, owners, columns[key]) for key, part in block.items()}
    if type(block) is not np.ndarray or block.dtype.kind not in "biufc":
        raise NotRowWise("elements of another kind")
    owners.append(_owner(block))
    known = column is not None and block.dtype in NUMBERS and block.size
    return Row(block, RowFormula("input", block.dtype, content=column) if known else None)


def _as_blocks(result: Any, count: int, owners: list[Any]) -> Any:
    """Return the blocks that a function's result represents: arrays as `stack` makes them.

    No two of them share memory, with each other or with what the function got.
    """
    if type(result) is tuple:
        return tuple([_as_blocks(part, count, owners) for part in result])
    if type(result) is dict:
        return {key: _as_blocks(part, count, owners) for key, part in result.items()}
    if type(result) is not Row:
        value = np.asarray(to_element(result, str))
        if value.dtype not in NUMBERS:
            raise NotRowWise("a constant that is no number")
        return np.repeat(np.asarray(value)[None], count, axis=0)
    array = result.block
    owner = _owner(array)
    shares = any(owner is other for other in owners)
    owners.append(owner)
    return array.copy() if shares else np.ascontiguousarray(array)


def _owner(array: Array) -> Any:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _compare(blocks: Any, element: Any, row: int) -> None:
    """Raise NotRowWise unless a row of blocks is an element, bit by bit."""
    kind = type(blocks)
    if kind is tuple:
        if type(element) is not tuple or len(element) != len(blocks):
            raise NotRowWise("another structure")
        for part, one in zip(blocks, element):
            _compare(part, one, row)
    elif kind is dict:
        if type(element) is not dict or list(element) != list(blocks):
            raise NotRowWise("another structure")
        for key, part in blocks.items():
            _compare(part, element[key], row)
    else:
        dtype, shape = getattr(element, "dtype", None), getattr(element, "shape", None)
        if dtype != blocks.dtype or shape != blocks.shape[1:]:
            raise NotRowWise("another dtype or shape")
        if not _same_bits(blocks[row], element):
            raise NotRowWise("another result")


def _same_bits(one: Array, other: Array) -> bool:
    if one.nbytes < _LARGE_BYTES or one.itemsize > 8:
        return one.tobytes() == other.tobytes()
    bits = f"u{one.itemsize}"
    return np.array_equal(one.view(bits), other.view(bits))
