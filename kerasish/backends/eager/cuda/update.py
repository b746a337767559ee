"""New values of all variables of an optimizer in one launch, and the norm of all gradients.

No op takes many variables at once: an optimizer asks the engine in charge
(`optimizers/fused_update.py`), and the engine of a GPU asks `update_by_formula`. The learning
rate, the counter and the factor that clips are read on the device: no launch waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kerasish.backends.eager.cuda.arrays import cast, compact, empty
from kerasish.backends.eager.cuda.kernels import THREADS, check, fits, launch
from kerasish.backends.eager.cuda.update_source import MOST, UpdateSource, source_of, table_of
from kerasish.backends.eager.update_program import program_of
from kerasish.ops.op import UpdateFormula
from kerasish.ops.shapes import Spec

CHUNK = 8192  # elements of a block
GRADIENTS = table_of(1, 1, 2, MOST)  # the table of `gradient_norm.cu`
Arrays = Sequence[Any]


def _tables(
    kind: np.dtype[Any],
    most: int,
    lists: Sequence[Arrays],
    decays: Sequence[float] | None = None,
    constants: Sequence[float] = (),
    numbers: Arrays = (),
) -> Iterator[tuple[Any, int, Any, Any]]:
    """Yield (table, blocks, dtype, packed) for as many tensors of a dtype as a launch takes.

    Args:
        kind: the table's dtype; most: how many tensors it holds.
        lists: for each array of a tensor one list over the tensors.
    """
    groups: dict[Any, list[int]] = {}
    for i, array in enumerate(lists[0]):
        if array.size:
            groups.setdefault(array.dtype, []).append(i)
    for dtype, members in groups.items():
        for start in range(0, len(members), most):
            some = members[start : start + most]
            table, blocks = np.zeros((), kind), 0  # CuPy passes an array of one element by value
            for place, i in enumerate(some):
                table["arrays"][:, place] = [arrays[i].data.ptr for arrays in lists]
                table["sizes"][place], table["first"][place] = lists[0][i].size, blocks
                table["decays"][place] = 0 if decays is None else decays[i]
                blocks += -(-lists[0][i].size // CHUNK)
            table["first"][len(some)], table["count"] = blocks, len(some)
            table["constants"][: len(constants)] = constants
            table["numbers"][: len(numbers)] = [n.data.ptr for n in numbers]
            packed = np.int32((table["arrays"][:, : len(some)] % 16 == 0).all())
            yield table, blocks, dtype, packed


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
        decays: for each value the share of it, times the rate, that is taken off first.
    """
    lists = _given(*elements)
    known = [cast(n, v.dtype) for n, v in zip(numbers, source.program.numbers)]
    results = [
        [empty(a.shape, a.dtype) for a in some] for k, some in enumerate(lists) if k != 1
    ]  # the gradients have no new ones
    tables = _tables(source.table, source.most, [*lists, *results], decays, source.constants, known)
    for table, blocks, dtype, packed in tables:
        args = (table, np.int64(CHUNK), packed)
        launch(source.name, source.kernel, dtype, blocks, (THREADS,), *args)
    return results


def global_norm(gradients: Arrays, limit: float = np.inf) -> tuple[Any, Any]:
    """Return (norm of all gradients together, limit / max(norm, limit)): float32 of one element.

    Sums of squares are float32, added in a fixed order.
    """
    (arrays,) = _given(gradients)
    tables = list(_tables(GRADIENTS, MOST, [arrays]))
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
    """Return the CUDA code of a formula, made by the first call; None where there is none.

    Args:
        formula: the update of one variable; numbers are computed in float32.
        count: how many elements it takes: value, gradient, slots.
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
    """Return [new values, new slots, ...], or None where no kernel can be made for it.

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
        for whole, part in zip(results, result):
            for i, array in zip(members, part):
                whole[i] = array
    return results
