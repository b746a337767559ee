"""Linear-chain conditional random fields: scores of whole sequences of tags.

The score of tags y is Σ_t potentials[t, y_t] + Σ_t transitions[y_(t-1), y_t] + start[y_first] +
end[y_last], over the steps that the mask lets count; a step that does not count is as if it were
not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops.basic.activation import as_float
from kerasish.ops.basic.arithmetic import add, subtract
from kerasish.ops.basic.comparison import logical_or, select
from kerasish.ops.basic.control import scan
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import arange, full, zeros
from kerasish.ops.basic.indexing import take_rows
from kerasish.ops.basic.movement import broadcast_to, reshape, transpose
from kerasish.ops.basic.reduce import argmax, reduce_max
from kerasish.ops.basic.reshaping import expand_dims, ndim
from kerasish.ops.basic.selection import get_item, take_along_axis
from kerasish.ops.basic.statistics import logsumexp
from kerasish.ops.op import function
from kerasish.typing import AnyTensor, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["crf_decode", "crf_log_likelihood", "crf_log_norm", "crf_score"]


def _ready(
    potentials: TensorLike,
    transitions: TensorLike,
    mask: AnyTensor | None,
    start: AnyTensor | None,
    end: AnyTensor | None,
) -> tuple[Any, Any, Any, Any, Any]:
    """Return (potentials (steps, n, k), transitions, mask (steps, n), start (k,), end (k,))."""
    x, between = as_float(potentials), as_float(transitions)
    if ndim(x) != 3 or between.shape != (x.shape[2], x.shape[2]):
        raise ShapeError(
            "crf: expected potentials (n, steps, tags) and transitions (tags, tags), got "
            f"{x.shape} and {between.shape}."
        )
    count = full(x.shape[:2], True, "bool") if mask is None else cast(as_tensor(mask), "bool")
    if count.shape != x.shape[:2]:
        raise ShapeError(f"crf: the mask must have the shape {x.shape[:2]}, got {count.shape}.")
    first, last = (
        zeros((x.shape[2],), x.dtype) if e is None else cast(as_float(e), x.dtype)
        for e in (start, end)
    )
    return transpose(x, (1, 0, 2)), cast(between, x.dtype), transpose(count), first, last


def _wide(x: AnyTensor) -> Tensor:
    return expand_dims(x, -1)


@function
def crf_log_norm(
    potentials: TensorLike,
    transitions: TensorLike,
    mask: AnyTensor | None = None,
    start: TensorLike | None = None,
    end: TensorLike | None = None,
) -> Tensor:
    """Return log Σ exp(score) over all sequences of tags, by the forward algorithm.

    Args:
        potentials: scores of the tags at each step.
        transitions: scores of tag i followed by tag j.
        mask: True where a step counts; None: all do.
        start: scores of the first tag; None: zeros. Likewise `end` of the last one.
        end: scores of the last tag, shape (tags,); None: zeros.

    Shape: (n, steps, tags), (tags, tags) -> (n,). Rows without a step that counts give 0.

    Example:
        >>> round(crf_log_norm([[[0.0, 0.0], [0.0, 0.0]]], [[0.0, 0.0], [0.0, 0.0]]).item(), 4)
        1.3863
    """
    x, between, count, first, last = _ready(potentials, transitions, mask, start, end)
    table = expand_dims(between, 0)

    def advance(carry: Sequence[Tensor], now: Sequence[Tensor]) -> tuple[Any, ...]:
        reached, begun = carry
        unary, counts = now
        moved = logsumexp(add(_wide(reached), table), 1)
        here = add(select(_wide(begun), moved, first), unary)
        reached = select(_wide(counts), here, reached)
        return (reached, logical_or(begun, counts)), None

    nothing = (zeros(x.shape[1:], x.dtype), full((x.shape[1],), False, "bool"))
    (reached, begun), _ = scan(advance, nothing, (x, count))
    return select(begun, logsumexp(add(reached, last), -1), 0)


@function
def crf_score(
    potentials: TensorLike,
    tags: TensorLike,
    transitions: TensorLike,
    mask: AnyTensor | None = None,
    start: TensorLike | None = None,
    end: TensorLike | None = None,
) -> Tensor:
    """Return the score of one sequence of tags per row; see `crf_log_norm`.

    Args:
        potentials: scores of each tag at each step, shape (n, steps, tags).
        tags: the sequences, integers of shape (n, steps).
        transitions: scores of one tag after another, shape (tags, tags).
        mask: which steps count, shape (n, steps); None: all.
        start: scores of the first tag, shape (tags,); None: zeros.
        end: scores of the last tag, shape (tags,); None: zeros.

    Shape: (n, steps, tags), (n, steps), (tags, tags) -> (n,)

    Example:
        >>> crf_score([[[1.0, 0.0], [0.0, 2.0]]], [[0, 1]], [[0.0, 0.5], [0.0, 0.0]]).tolist()
        [3.5]
    """
    x, between, count, first, last = _ready(potentials, transitions, mask, start, end)
    path = cast(as_tensor(tags), "int32")
    if path.shape != (x.shape[1], x.shape[0]):
        raise ShapeError(
            f"crf: the tags must have the shape {(x.shape[1], x.shape[0])}, got {path.shape}."
        )
    kinds = x.shape[2]
    flat = reshape(between, (kinds * kinds,))

    def advance(carry: Sequence[Tensor], now: Sequence[Tensor]) -> tuple[Any, ...]:
        total, before, begun = carry
        unary, tag, counts = now
        here = get_item(take_along_axis(unary, _wide(tag), 1), (slice(None), 0))
        step = select(begun, take_rows(flat, add(before * kinds, tag)), take_rows(first, tag))
        total = add(total, select(counts, add(here, step), 0))
        return (total, select(counts, tag, before), logical_or(begun, counts)), None

    rows = (x.shape[1],)
    nothing = (zeros(rows, x.dtype), zeros(rows, "int32"), full(rows, False, "bool"))
    (total, tag, begun), _ = scan(advance, nothing, (x, transpose(path), count))
    return add(total, select(begun, take_rows(last, tag), 0))


@function
def crf_log_likelihood(
    potentials: TensorLike,
    tags: TensorLike,
    transitions: TensorLike,
    mask: AnyTensor | None = None,
    start: TensorLike | None = None,
    end: TensorLike | None = None,
) -> Tensor:
    """Return log p(tags) = score(tags) - log Σ exp(score), one number per row.

    Args:
        potentials: scores of each tag at each step, shape (n, steps, tags).
        tags: the sequences, integers of shape (n, steps).
        transitions: scores of one tag after another, shape (tags, tags).
        mask: which steps count, shape (n, steps); None: all.
        start: scores of the first tag, shape (tags,); None: zeros.
        end: scores of the last tag, shape (tags,); None: zeros.

    Shape: (n, steps, tags), (n, steps), (tags, tags) -> (n,)

    Source: Lafferty, McCallum & Pereira, ICML 2001.

    Example:
        >>> scores, transitions = [[[9.0, 0.0], [0.0, 9.0]]], [[0.0, 0.0], [0.0, 0.0]]
        >>> crf_log_likelihood(scores, [[0, 1]], transitions).item() > -0.01
        True
    """
    rest = (transitions, mask, start, end)
    return subtract(crf_score(potentials, tags, *rest), crf_log_norm(potentials, *rest))


@function
def crf_decode(
    potentials: TensorLike,
    transitions: TensorLike,
    mask: AnyTensor | None = None,
    start: TensorLike | None = None,
    end: TensorLike | None = None,
) -> tuple[Any, Any]:
    """Return (the best sequences of tags, int32, 0 where no step counts; their scores).

    Args:
        potentials: scores of each tag at each step, shape (n, steps, tags).
        transitions: scores of one tag after another, shape (tags, tags).
        mask: which steps count, shape (n, steps); None: all.
        start: scores of the first tag, shape (tags,); None: zeros.
        end: scores of the last tag, shape (tags,); None: zeros.

    Shape: (n, steps, tags), (tags, tags) -> (n, steps), (n,)

    Source: Viterbi, IEEE Trans. Information Theory 13 (1967).

    Example:
        >>> tags, score = crf_decode([[[1.0, 0.0], [0.0, 0.5]]], [[0.0, -1.0], [0.0, 0.0]])
        >>> tags.tolist(), score.tolist()
        ([[0, 0]], [1.0])
    """
    x, between, count, first, last = _ready(potentials, transitions, mask, start, end)
    table, (_, rows, kinds) = expand_dims(between, 0), x.shape
    stay = broadcast_to(arange(kinds, dtype="int32"), (rows, kinds))

    def advance(carry: Sequence[Tensor], now: Sequence[Tensor]) -> tuple[Any, ...]:
        reached, begun = carry
        unary, counts = now
        ways = add(_wide(reached), table)
        here = add(select(_wide(begun), reduce_max(ways, 1), first), unary)
        origin = cast(argmax(ways, 1), "int32")
        # Where a step does not count, or is the first, the tag before is the tag itself.
        origin = select(_wide(counts), select(_wide(begun), origin, stay), stay)
        reached = select(_wide(counts), here, reached)
        return (reached, logical_or(begun, counts)), origin

    nothing = (zeros((rows, kinds), x.dtype), full((rows,), False, "bool"))
    (reached, begun), origin = scan(advance, nothing, (x, count))
    final = add(reached, last)
    best = cast(argmax(final, -1), "int32")

    def back(tag: TensorLike, origin: TensorLike) -> tuple[Any, ...]:
        before = get_item(take_along_axis(origin, _wide(tag), 1), (slice(None), 0))
        return before, tag

    _, tags = scan(back, best, origin, reverse=True)
    tags = select(count, tags, 0)
    return transpose(tags), select(begun, reduce_max(final, -1), 0)
