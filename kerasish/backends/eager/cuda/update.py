"""New values of all variables of an optimizer in one launch, and the norm of all gradients.

No op takes many variables at the same time: an optimizer calls the current engine
(`optimizers/fused_update.py`), and the engine of a GPU calls `update_by_formula`. The learning
rate, the counter and the clipping factor are read on the device: no launch waits for them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.eager.cuda.arrays import cast, compact, empty
from kerasish.backends.eager.cuda.kernels import THREADS, check, fits, launch
from kerasish.backends.eager.cuda.update_source import MOST, UpdateSource, source_of, table_of
from kerasish.backends.eager.update_program import program_of
from kerasish.ops.op import UpdateFormula
from kerasish.ops.shapes import Spec

CHUNK = 8192  # elements of a block
ALIGNMENT = 256  # bytes: as CuPy's pool aligns memory
KEPT = 8  # tables that are kept for each list of tensors
GRADIENTS = table_of(1, 1, 2, MOST)  # the table of `gradient_norm.cu`
Arrays = Sequence[Any]


class Launch(NamedTuple):
    """A launch for the tensors of one dtype in one table."""

    table: Any
    blocks: int
    dtype: Any
    packed: Any


_kept: OrderedDict[Any, list[Launch]] = OrderedDict()


def _launches(
    kind: np.dtype[Any],
    most: int,
    lists: Sequence[Arrays],
    decays: Sequence[float] | None = None,
    constants: Sequence[float] = (),
    numbers: Arrays = (),
) -> list[Launch]:
    """Return the launches for all tensors; cached ones if all pointers are the same.

    A step's new values use the memory of those two steps before, because the pool reuses freed
    memory. So a few tables are enough for a whole training.

    Args:
        kind: the table's dtype; most: the number of tensors in it.
        lists: for each array of a tensor one list over the tensors.
    """
    pointers = [a.data.ptr for arrays in lists for a in arrays]
    known = tuple(n.data.ptr for n in numbers)
    sizes = tuple(a.size for a in lists[0])
    dtypes = tuple(a.dtype for a in lists[0])
    shares = None if decays is None else tuple(decays)
    key = (kind, most, tuple(pointers), known, sizes, dtypes, shares, tuple(constants))
    launches = _kept.get(key)
    if launches is None:
        table = np.array(pointers, "u8").reshape(len(lists), -1)
        launches = _made(kind, most, table, dtypes, np.array(sizes, "i8"), shares)
        for launch_ in launches:
            launch_.table["constants"][: len(constants)] = constants
            launch_.table["numbers"][: len(known)] = known
        while len(_kept) >= KEPT:
            _kept.popitem(last=False)
    else:
        del _kept[key]
    _kept[key] = launches  # the latest last
    return launches


def _made(
    kind: np.dtype[Any], most: int, pointers: Any, dtypes: Sequence[Any], sizes: Any,
    decays: Sequence[float] | None,
) -> list[Launch]:  # fmt: skip
    """Return the launches whose tables hold these pointers (arrays of a tensor, tensors)."""
    launches = []
    for dtype in dict.fromkeys(dtypes):
        members = np.flatnonzero([d == dtype and n > 0 for d, n in zip(dtypes, sizes)])
        for start in range(0, len(members), most):
            some = members[start : start + most]
            count = len(some)
            table = np.zeros((), kind)  # CuPy passes an array of one element by value
            table["arrays"][:, :count], table["sizes"][:count] = pointers[:, some], sizes[some]
            if decays is not None:
                table["decays"][:count] = np.asarray(decays, "f4")[some]
            table["first"][1 : count + 1] = np.cumsum(-(-sizes[some] // CHUNK))
            table["count"] = count
            packed = np.int32((pointers[:, some] % 16 == 0).all())
            launches.append(Launch(table, int(table["first"][count]), dtype, packed))
    return launches


def _results(arrays: Arrays) -> list[Any]:
    """Return new arrays like these, in one block of memory per dtype."""
    parts: list[Any] = [None] * len(arrays)
    for dtype in dict.fromkeys(a.dtype for a in arrays):
        some = [i for i, a in enumerate(arrays) if a.dtype == dtype]
        step = ALIGNMENT // dtype.itemsize
        starts, total = [], 0
        for i in some:
            starts.append(total)
            total += -(-arrays[i].size // step) * step
        memory = empty(total, dtype)
        for i, start in zip(some, starts):
            a = arrays[i]
            parts[i] = memory[start : start + a.size].reshape(a.shape)
    return parts


def _given(*lists: Arrays) -> list[list[Any]]:
    for arrays in zip(*lists):
        check("update", *arrays)
    return [[compact(a) for a in arrays] for arrays in lists]


def update_tensors(
    source: UpdateSource,
    elements: Sequence[Arrays],
    numbers: Arrays,
    decays: Sequence[float] | None = None,
) -> list[list[Any]]:
    """Return [new values, new slots, ...] of all variables by a formula.

    Args:
        source: the formula, compiled.
        elements: values, gradients, and each kind of slot.
        numbers: for each of the program's numbers an array without axes, on the device.
        decays: for each value the share of it, times the rate, that is subtracted first.
    """
    lists = _given(*elements)
    known = [cast(n, v.dtype) for n, v in zip(numbers, source.program.numbers)]
    results = [_results(arrays) for k, arrays in enumerate(lists) if k != 1]  # no gradients
    given = ([*lists, *results], decays, source.constants, known)
    for table, blocks, dtype, packed in _launches(source.table, source.most, *given):
        args = (table, np.int64(CHUNK), packed)
        launch(source.name, source.kernel, dtype, blocks, (THREADS,), *args)
    return results


def global_norm(gradients: Arrays, limit: float = np.inf) -> tuple[Any, Any]:
    """Return (norm of all gradients together, limit / max(norm, limit)): float32 of one element.

    Sums of squares are float32, added in a fixed order.
    """
    (arrays,) = _given(gradients)
    tables = _launches(GRADIENTS, MOST, [arrays])
    total = sum(blocks for _, blocks, _, _ in tables)
    parts = empty(max(total, 1), np.float32)
    norm, factor = empty((), np.float32), empty((), np.float32)
    offset = 0
    for table, blocks, dtype, packed in tables:
        args = (table, parts, np.int64(offset), np.int64(CHUNK), packed)
        launch("gradient_norm", "square_parts", dtype, blocks, (THREADS,), *args)
        offset += blocks
    ends = (parts, norm, factor, np.int64(total), np.float32(limit))
    launch("gradient_norm", "norm_of_parts", np.dtype("float32"), 1, (THREADS,), *ends)
    return norm, factor


def compiled(
    formula: UpdateFormula, count: int, numbers: Sequence[Any], decay: bool
) -> UpdateSource | None:
    """Return the CUDA code of a formula, generated by the first call; None if there is none.

    Args:
        formula: the update of one variable; numbers are computed in float32.
        count: the number of its inputs with elements: value, gradient, slots.
        numbers: tensors or arrays without axes, or None.
        decay: whether variables decay.
    """
    specs = [None if n is None else Spec(tuple(n.shape), str(n.dtype)) for n in numbers]
    key = ("cuda", count, *specs, decay)
    if key not in formula.compiled:
        program = program_of(formula, "float32", count, specs, decay)
        result = None if program is None else source_of(program, formula.name)
        formula.compiled[key] = result
    source: UpdateSource | None = formula.compiled[key]
    return source


def update_by_formula(
    formula: UpdateFormula,
    elements: Sequence[Arrays],
    numbers: Sequence[Any],
    decays: Sequence[float],
    brought: Callable[[Any], Any],
) -> list[list[Any]] | None:
    """Return [new values, new slots, ...], or None if no kernel can be generated.

    Args:
        formula: the update of one variable.
        elements: arrays: values, gradients, and a list for each slot.
        numbers: tensors without axes, or None.
        decays: for each value its weight decay, 0 for none.
        brought: tensor -> its array on the device.
    """
    if not all(fits(*arrays) for arrays in zip(*elements)):
        return None
    results: list[list[Any]] = [[None] * len(decays) for _ in range(len(elements) - 1)]
    for decay in (False, True):
        members = [i for i, share in enumerate(decays) if bool(share) == decay]
        if not members:
            continue
        source = compiled(formula, len(elements), numbers, decay)
        if source is None:
            return None
        given = [brought(n) for n in numbers if n is not None]
        given += [brought(v.value) for v in source.program.variables]
        some = [[arrays[i] for i in members] for arrays in elements]
        result = update_tensors(source, some, given, [decays[i] for i in members])
        for arrays, part in zip(results, result):
            for i, array in zip(members, part):
                arrays[i] = array
    return results
