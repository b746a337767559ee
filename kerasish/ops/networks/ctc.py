"""Connectionist temporal classification: its loss and its decoders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish.errors import ShapeError
from kerasish.ops.algebra.special import logaddexp
from kerasish.ops.basic.activation import as_float, log_softmax
from kerasish.ops.basic.arithmetic import add, multiply, negative, subtract
from kerasish.ops.basic.comparison import equal, less, logical_and, logical_or, not_equal, select
from kerasish.ops.basic.control import scan
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import arange, full, unsized
from kerasish.ops.basic.movement import broadcast_to, concatenate, reshape, strided_slice, transpose
from kerasish.ops.basic.reduce import argmax, argsort, reduce_max, reduce_sum
from kerasish.ops.basic.reshaping import expand_dims
from kerasish.ops.basic.selection import get_item, take_along_axis
from kerasish.ops.basic.statistics import logsumexp
from kerasish.ops.op import function, is_inferring
from kerasish.typing import AnyTensor, Array, TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["ctc_decode", "ctc_loss"]

# The logarithm of no probability: finite, so that differences of two such numbers are too.
NEVER = -1e5


def _extended(target: Tensor, mask_index: int) -> Tensor:
    """Return blank, label 1, blank, label 2, ..., blank for each row of labels."""
    n, length = target.shape
    pairs = concatenate([full((n, length, 1), mask_index, "int32"), expand_dims(target, -1)], -1)
    return concatenate([reshape(pairs, (n, 2 * length)), full((n, 1), mask_index, "int32")], 1)


def _at_least_float32(x: AnyTensor) -> Tensor:
    x = as_float(x)
    return cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x


def _moved(alpha: AnyTensor, places: int) -> Tensor:
    """Return alpha's columns moved right, what cannot be coming in."""
    n, size = alpha.shape
    edge = full((n, min(places, size)), NEVER, alpha.dtype)
    return concatenate([edge, strided_slice(alpha, [slice(None), slice(0, size - places)])], 1)


@function
def ctc_loss(
    target: TensorLike,
    output: TensorLike,
    target_length: Sequence[int],
    output_length: Sequence[int],
    mask_index: int = 0,
) -> Tensor:
    """Return -log of the probability of all ways to read the labels off the outputs.

    Args:
        target: label numbers, shape (n, labels), filled up at the end.
        output: logits, shape (n, steps, classes).
        target_length: how many labels count, shape (n,).
        output_length: how many steps count, shape (n,).
        mask_index: the class that means "no label".

    Shape: -> (n,)

    Source: Graves et al., ICML 2006.

    Example:
        >>> import numpy as np
        >>> loss = ctc_loss(np.array([[1]]), np.zeros((1, 1, 4), "float32"), [1], [1])
        >>> [round(float(v), 4) for v in loss]  # one step, four equal classes: log 4
        [1.3863]
    """
    output, target = _at_least_float32(output), cast(as_tensor(target), "int32")
    if len(output.shape) != 3 or len(target.shape) != 2:
        raise ShapeError(
            "ctc_loss: expected a target (n, labels) and an output (n, steps, classes), got "
            f"{target.shape} and {output.shape}."
        )
    labels = _extended(target, mask_index)
    n, size = labels.shape
    log_p = log_softmax(output, -1)
    emitted = transpose(take_along_axis(log_p, expand_dims(labels, 1), -1), (1, 0, 2))
    # A label may follow the last one but one directly, unless that is the same label or a blank.
    before = strided_slice(labels, [slice(None), slice(0, size - 2)])
    later = strided_slice(labels, [slice(None), slice(2, None)])
    skips = logical_and(not_equal(later, before), not_equal(later, mask_index))
    skips = concatenate([full((n, 2), False, "bool"), skips], 1)
    place = reshape(arange(size), (1, size))
    first = select(less(place, 2), get_item(emitted, 0), NEVER)
    ends = reshape(cast(as_tensor(output_length), "int32"), (n, 1))

    def step(alpha: TensorLike, now: Sequence[Tensor]) -> tuple[Any, ...]:
        number, log_now = now
        stay = logaddexp(alpha, _moved(alpha, 1))
        both = select(skips, logaddexp(stay, _moved(alpha, 2)), stay)
        return select(less(number, ends), add(both, log_now), alpha), None

    steps = emitted.shape[0]
    alpha, _ = scan(step, first, (arange(1, steps), get_item(emitted, slice(1, None))))
    last = multiply(cast(as_tensor(target_length), "int32"), 2)
    last = reshape(last, (n, 1))
    final = logical_or(equal(place, last), equal(place, subtract(last, 1)))
    chosen = select(final, alpha, NEVER)
    return negative(logsumexp(chosen, 1))


@function
def ctc_decode(
    inputs: TensorLike,
    sequence_lengths: Sequence[int],
    strategy: str = "greedy",
    beam_width: int = 100,
    top_paths: int = 1,
    merge_repeated: bool = True,
    mask_index: int = 0,
) -> tuple[Tensor, ...]:
    """Return (labels, scores) read off outputs.

    Args:
        inputs: logits, shape (n, steps, classes).
        sequence_lengths: how many steps count, shape (n,).
        strategy: "greedy" (the likeliest class of each step) or "beam_search", which depends on
            numbers and cannot be traced.
        beam_width: how many prefixes a beam search follows.
        top_paths: how many of them it returns.
        merge_repeated: whether equal neighbors are one label.
        mask_index: the class that means "no label".

    Shape: labels (top_paths, n, steps), -1 behind the last one; scores (n, top_paths): for the
    greedy strategy the negated sum of the chosen logits, else the logarithm of the probability.

    Source: Graves et al., ICML 2006; the beam search of Hannun et al., 2014, without a language
    model.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[[0, 5, 0], [0, 5, 0], [5, 0, 0], [0, 0, 5]]], "float32")
        >>> labels, scores = ctc_decode(logits, [4])
        >>> labels.tolist(), scores.tolist()
        ([[[1, 2, -1, -1]]], [[-20.0]])
    """
    if strategy == "greedy":
        return _decode_greedily(inputs, sequence_lengths, merge_repeated, mask_index)
    if strategy != "beam_search":
        raise ValueError(f"ctc_decode: 'greedy' or 'beam_search', got {strategy!r}.")
    return _decode_by_beams(inputs, sequence_lengths, beam_width, top_paths, mask_index)


def _decode_greedily(
    inputs: Array, sequence_lengths: Sequence[int], merge_repeated: bool, mask_index: int
) -> tuple[Any, Any]:
    x = _at_least_float32(inputs)
    n, steps, _ = x.shape
    lengths = reshape(cast(as_tensor(sequence_lengths), "int32"), (n, 1))
    inside = broadcast_to(less(arange(steps), lengths), (n, steps))
    labels, best = argmax(x, -1), reduce_max(x, -1)
    kept = logical_and(inside, not_equal(labels, mask_index))
    if merge_repeated:
        same = equal(get_item(labels, (..., slice(1, None))), get_item(labels, (..., slice(-1))))
        new = concatenate([full((n, 1), True, "bool"), equal(same, False)], 1)
        kept = logical_and(kept, new)
    # What is kept moves to the front, in order.
    order = argsort(cast(equal(kept, False), "int32"), -1)
    result = take_along_axis(select(kept, labels, -1), order, -1)
    score = negative(reduce_sum(select(inside, best, 0), 1, True))
    return expand_dims(result, 0), score


def _decode_by_beams(
    inputs: Array, sequence_lengths: Sequence[int], width: int, top_paths: int, blank: int
) -> tuple[Any, Any]:
    inputs = as_tensor(inputs)
    if is_inferring(inputs):
        n, steps, _ = inputs.shape
        return unsized((top_paths, n, steps), "int32"), unsized((n, top_paths), "float32")
    log_p = log_softmax(_at_least_float32(inputs), -1).numpy()
    lengths = as_tensor(sequence_lengths).numpy()
    n, steps, _ = log_p.shape
    result = np.full((top_paths, n, steps), -1, "int32")
    scores = np.full((n, top_paths), -np.inf, "float32")
    for row in range(n):
        beams = _beams(log_p[row, : lengths[row]], width, blank)
        for path, (labels, score) in enumerate(beams[:top_paths]):
            result[path, row, : len(labels)] = labels
            scores[row, path] = score
    return as_tensor(result), as_tensor(scores)


def _join(a: float, b: float) -> float:
    top = max(a, b)
    return top if top == -math.inf else top + math.log(math.exp(a - top) + math.exp(b - top))


def _beams(log_p: Array, width: int, blank: int) -> list[tuple[tuple[int, ...], float]]:
    """Return (labels, log of the probability) of the best prefixes, best first."""
    # Of each prefix: the logarithms of its probability with a blank at its end, and without.
    beams: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -math.inf)}
    for now in log_p.tolist():
        more: dict[tuple[int, ...], tuple[float, float]] = {}

        def add_to(
            prefix: tuple[int, ...], ended: float, open_: float, more: dict[Any, Any] = more
        ) -> None:
            a, b = more.get(prefix, (-math.inf, -math.inf))
            more[prefix] = _join(a, ended), _join(b, open_)

        for prefix, (ended, open_) in beams.items():
            both = _join(ended, open_)
            for label, score in enumerate(now):
                if label == blank:
                    add_to(prefix, both + score, -math.inf)
                elif prefix and prefix[-1] == label:
                    add_to(prefix, -math.inf, open_ + score)
                    add_to((*prefix, label), -math.inf, ended + score)
                else:
                    add_to((*prefix, label), -math.inf, both + score)
        best = sorted(more.items(), key=lambda item: -_join(*item[1]))[:width]
        beams = dict(best)
    return [(prefix, _join(*pair)) for prefix, pair in beams.items()]
