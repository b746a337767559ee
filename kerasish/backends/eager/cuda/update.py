"""New values of all variables of an optimizer in one launch, and the norm of all gradients.

No op takes many variables at once: an optimizer asks the engine in charge
(`optimizers/fused_update.py`), and the engine of a GPU asks `update_by_rule`. The learning rate,
the counter and the factor that clips are read on the device: no launch waits for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kerasish.backends.eager.cuda.entry import Entry, cast, compact, result, scratch
from kerasish.backends.eager.cuda.kernels import (
    NOTHING,
    THREADS,
    check,
    fits,
    launch,
)

SOURCE = "update"
MOST = 40  # tensors a launch takes, as in update.cu
CHUNK = 8192  # elements of a block
TABLE = np.dtype(
    [("arrays", "u8", (7, MOST)), ("sizes", "i8", MOST), ("decays", "f4", MOST),
     ("first", "i4", MOST + 1), ("count", "i4")]
)  # fmt: skip
VALUE, GRADIENT, SLOT, SECOND, NEW, NEW_SLOT, NEW_SECOND = range(7)


def _tables(
    lists: dict[int, Sequence[Any]], decays: Sequence[float] | None
) -> Iterator[tuple[Any, int, Any, Any]]:
    """Yield (table, blocks, dtype, packed) for as many tensors of a dtype as a launch takes.

    Args:
        lists: number of the array in the table -> one array for each tensor.
    """
    first = next(iter(lists.values()))
    groups: dict[Any, list[int]] = {}
    for i, array in enumerate(first):
        if array.size:
            groups.setdefault(array.dtype, []).append(i)
    for dtype, members in groups.items():
        for start in range(0, len(members), MOST):
            some = members[start : start + MOST]
            yield (*_table(some, lists, decays), dtype, _aligned(some, lists))


def _table(
    members: list[int], lists: dict[int, Sequence[Any]], decays: Sequence[float] | None
) -> tuple[Any, int]:
    table, blocks = np.zeros((), TABLE), 0
    for place, i in enumerate(members):
        for number, arrays in lists.items():
            table["arrays"][number, place] = arrays[i].data.ptr
        size = next(iter(lists.values()))[i].size
        table["sizes"][place], table["first"][place] = size, blocks
        table["decays"][place] = 0 if decays is None else decays[i]
        blocks += -(-size // CHUNK)
    table["first"][len(members)], table["count"] = blocks, len(members)
    return table, blocks  # CuPy passes an array of one element by value


def _aligned(members: list[int], lists: dict[int, Sequence[Any]]) -> Any:
    pointers = (arrays[i].data.ptr for arrays in lists.values() for i in members)
    return np.int32(all(p % 16 == 0 for p in pointers))


def _new(arrays: Sequence[Any]) -> list[Any]:
    return [result(a.shape, a.dtype) for a in arrays]


def _given(*lists: Sequence[Any]) -> list[list[Any]]:
    for arrays in zip(*lists):
        check("update", *arrays)
    return [[compact(a) for a in arrays] for arrays in lists]


@Entry
def sgd_update(
    values: Sequence[Any],
    gradients: Sequence[Any],
    momentums: Sequence[Any] | None,
    rate: Any,
    momentum: float = 0.0,
    nesterov: bool = False,
    factor: Any = None,
    decays: Sequence[float] | None = None,
) -> tuple[list[Any], list[Any]]:
    """Return the new values and momentums; see `kerasish.optimizers.SGD`.

    Args:
        rate: float32 without axes, on the device; `factor` likewise: gradients count so many times.
        decays: for each value the share of it, times the rate, that is taken off first.
    """
    values, gradients = _given(values, gradients)
    lists: dict[int, Sequence[Any]] = {VALUE: values, GRADIENT: gradients, NEW: _new(values)}
    if momentums is not None:
        (slots,) = _given(momentums)
        lists |= {SLOT: slots, NEW_SLOT: _new(slots)}
    scale = NOTHING if factor is None else factor
    flags = (np.float32(momentum), np.int32(nesterov), np.int32(momentums is not None))
    numbers = (rate, scale, np.int32(factor is not None), *flags, np.int64(CHUNK))
    for table, blocks, dtype, together in _tables(lists, decays):
        launch(SOURCE, "sgd_update", dtype, blocks, (THREADS,), table, *numbers, together)
    return list(lists[NEW]), list(lists.get(NEW_SLOT, []))


@Entry
def adam_update(
    values: Sequence[Any],
    gradients: Sequence[Any],
    momentums: Sequence[Any],
    velocities: Sequence[Any],
    rate: Any,
    steps: Any,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    factor: Any = None,
    decays: Sequence[float] | None = None,
) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the new values, momentums and velocities; see `kerasish.optimizers.Adam` (AdamW).

    Args:
        rate: float32 without axes, on the device; `factor` likewise: gradients count so many times.
        steps: int32 without axes, on the device: how many updates were made before.
        decays: for each value the share of it, times the rate, that is taken off first.
    """
    values, gradients, first, second = _given(values, gradients, momentums, velocities)
    lists: dict[int, Sequence[Any]] = {
        VALUE: values, GRADIENT: gradients, SLOT: first, SECOND: second, NEW: _new(values),
        NEW_SLOT: _new(first), NEW_SECOND: _new(second),
    }  # fmt: skip
    scale = NOTHING if factor is None else factor
    betas = (np.float32(beta_1), np.float32(beta_2), np.float32(epsilon))
    numbers = (rate, steps, scale, np.int32(factor is not None), *betas, np.int64(CHUNK))
    for table, blocks, dtype, together in _tables(lists, decays):
        launch(SOURCE, "adam_update", dtype, blocks, (THREADS,), table, *numbers, together)
    return list(lists[NEW]), list(lists[NEW_SLOT]), list(lists[NEW_SECOND])


@Entry
def global_norm(gradients: Sequence[Any], limit: float = np.inf) -> tuple[Any, Any]:
    """Return (norm of all gradients together, limit / max(norm, limit)): float32 of one element.

    Sums of squares are float32, added in a fixed order.
    """
    (arrays,) = _given(gradients)
    tables = list(_tables({GRADIENT: arrays}, None)) if arrays else []
    total = sum(blocks for _, blocks, _, _ in tables)
    parts = scratch(max(total, 1), np.float32)
    norm, factor = result((), np.float32), result((), np.float32)
    offset = 0
    for table, blocks, dtype, together in tables:
        sizes = (np.int64(offset), np.int64(CHUNK))
        args = (table, parts, *sizes, together)
        launch(SOURCE, "square_parts", dtype, blocks, (THREADS,), *args)
        offset += blocks
    ends = (parts, norm, factor, np.int64(total), np.float32(limit))
    launch(SOURCE, "norm_of_parts", np.dtype("float32"), 1, (THREADS,), *ends)
    return norm, factor


def update_by_rule(
    rule: str,
    settings: dict[str, Any],
    lists: Sequence[Sequence[Any]],
    rate: Any,
    steps: Any,
    decays: Sequence[float],
    factor: Any = None,
) -> list[list[Any]] | None:
    """Return [new values, new slots, ...], or None where no kernel does it.

    Args:
        rule: "sgd" or "adam"; `settings`: its numbers.
        lists: values, gradients, and a list for each slot.
        factor: gradients count so many times: float32 without axes; None: once.
    """
    if rule not in ("sgd", "adam") or not all(fits(*arrays) for arrays in zip(*lists)):
        return None
    rate = cast(rate, np.float32)
    some = decays if any(decays) else None
    values, gradients, *slots = lists
    settings = {**settings, "factor": factor, "decays": some}
    if rule == "adam":
        first, second = slots
        found = adam_update(values, gradients, first, second, rate, steps, **settings)
        return list(found)
    momentums = slots[0] if slots else None
    made, moved = sgd_update(values, gradients, momentums, rate, **settings)
    return [made, moved] if slots else [made]
