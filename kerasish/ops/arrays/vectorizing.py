"""A function of single elements made one of tensors."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kerasish.ops.basic.control import vectorized_map
from kerasish.ops.basic.conversion import as_tensor
from kerasish.ops.basic.movement import broadcast_to, reshape
from kerasish.ops.shapes import broadcast_shapes
from kerasish.typing import AnyTensor, Structure

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["vectorize"]


def _ranks(signature: str | None, count: int) -> list[int]:
    """Return how many axes of each argument one call takes."""
    if signature is None:
        return [0] * count
    if not re.fullmatch(r"\s*\([\w\s,]*\)(\s*,\s*\([\w\s,]*\))*\s*->.*", signature):
        raise ValueError(f"vectorize: {signature!r} is no signature such as '(n),(n)->()'.")
    groups = re.findall(r"\(([^()]*)\)", signature.split("->")[0])
    if len(groups) != count:
        raise ValueError(f"vectorize: {signature!r} takes {len(groups)} arguments, got {count}.")
    return [len([name for name in group.split(",") if name.strip()]) for group in groups]


def vectorize(
    pyfunc: Callable[..., Any],
    *,
    excluded: Iterable[int | str] | None = None,
    signature: str | None = None,
) -> Callable[..., Any]:
    """Return a function that calls `pyfunc` for every element of its arguments, broadcast together.

    Args:
        pyfunc: takes tensors and returns a tensor, or a structure of tensors.
        excluded: positions and names of arguments that are handed on as they are; None: none.
        signature: such as "(n),(n)->()": the trailing axes that one call takes; None: none.

    Example:
        >>> vectorize(lambda a, b: a * b + 1)([1, 2], [[3], [4]]).tolist()
        [[4, 7], [5, 9]]
    """
    kept = set(excluded or ())

    @functools.wraps(pyfunc)
    def vectorized(*args: Any, **kwargs: Any) -> Tensor | int | tuple[Tensor, ...]:
        moving = [i for i in range(len(args)) if i not in kept]
        names = [name for name in kwargs if name not in kept]
        tensors = [as_tensor(args[i]) for i in moving] + [as_tensor(kwargs[n]) for n in names]
        if not tensors:
            return pyfunc(*args, **kwargs)
        ranks = _ranks(signature, len(tensors))
        splits = [len(t.shape) - rank for t, rank in zip(tensors, ranks)]
        lead = broadcast_shapes(*(t.shape[:s] for t, s in zip(tensors, splits)), what="vectorize")
        rows = [
            reshape(broadcast_to(t, (*lead, *t.shape[s:])), (math.prod(lead), *t.shape[s:]))
            for t, s in zip(tensors, splits)
        ]

        def call(elements: Sequence[Tensor]) -> Structure:
            full, named = list(args), dict(kwargs)
            for i, element in zip(moving, elements):
                full[i] = element
            named.update(zip(names, elements[len(moving) :]))
            return pyfunc(*full, **named)

        return _unflattened(vectorized_map(call, tuple(rows)), lead)

    return vectorized


def _unflattened(y: AnyTensor, lead: tuple[int, ...]) -> Structure:
    if isinstance(y, (tuple, list)):
        return type(y)(_unflattened(part, lead) for part in y)
    return reshape(y, (*lead, *y.shape[1:]))
