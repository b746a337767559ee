"""A few classes in place of all: candidates drawn, with their expected counts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kerasish.errors import ShapeError
from kerasish.ops.arrays.searching import searchsorted
from kerasish.ops.basic.activation import as_float
from kerasish.ops.basic.arithmetic import (
    add,
    divide,
    floor,
    maximum,
    minimum,
    multiply,
    negative,
    subtract,
)
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.creation import arange, ones_like
from kerasish.ops.basic.exponentials import exp, expm1, log
from kerasish.ops.basic.indexing import take_rows
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.ops.basic.selection import get_item, top_k
from kerasish.ops.basic.statistics import cumsum
from kerasish.ops.op import function
from kerasish.ops.random import uniform
from kerasish.typing import TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

SAMPLERS = ("log_uniform", "uniform")


class Candidates(NamedTuple):
    """Classes drawn, and the expected counts of the true ones and of these among the drawn."""

    sampled: Any
    true_expected: Any
    sampled_expected: Any


def class_probabilities(sampler: Any, num_classes: int) -> Tensor:
    """Return the probabilities with which classes are drawn, (num_classes,), float32.

    Args:
        sampler: "log_uniform": log((c + 2) / (c + 1)) / log(num_classes + 1), Zipf's law for
            classes numbered by falling frequency; "uniform"; or one number >= 0 for each class.
        num_classes: their number.
    """
    if isinstance(sampler, str):
        if sampler not in SAMPLERS:
            raise ValueError(f"sampler must be one of {SAMPLERS} or numbers, got {sampler!r}.")
        if sampler == "uniform":
            return as_tensor(np.full(num_classes, 1 / num_classes, "float32"))
        c = np.arange(num_classes)
        share = np.log1p(1 / (c + 1.0)) / math.log(num_classes + 1)
        return as_tensor(share.astype("float32"))
    weights = cast(as_float(sampler), "float32")
    if weights.shape != (num_classes,):
        raise ShapeError(
            f"sampler: expected one number for each of {num_classes} classes, got shape "
            f"{weights.shape}."
        )
    return divide(weights, reduce_sum(weights, 0))


def _with_replacement(u: Tensor, sampler: Any, share: Tensor, num_classes: int) -> Tensor:
    name = sampler if isinstance(sampler, str) else "frequencies"
    if name == "uniform":
        result = floor(multiply(u, num_classes))
    elif name == "log_uniform":
        # The distribution's sums up to class c are log(c + 2) / log(num_classes + 1).
        result = subtract(floor(exp(multiply(u, math.log(num_classes + 1)))), 1)
    else:
        result = searchsorted(cumsum(share, 0), u, side="right")
    return cast(minimum(maximum(result, 0), num_classes - 1), "int32")


@function
def sample_candidates(
    state: TensorLike,
    true_classes: TensorLike,
    num_sampled: int,
    num_classes: int,
    sampler: Any = "log_uniform",
    unique: bool = True,
) -> Candidates:
    """Return `num_sampled` classes drawn for a whole batch, with expected counts.

    Without repetition the classes are the largest of log p + Gumbel noise; given the largest of
    those left out, k, a class is among them with probability 1 - exp(-p exp(-k)), which is used
    as its expected count: estimates weighted with its inverse are unbiased.

    Args:
        state: of the random numbers, uint32 [seed, draw].
        true_classes: integers of any shape.
        num_sampled: how many; without repetition at most num_classes.
        num_classes: numbers of classes are below it.
        sampler: see `class_probabilities`.
        unique: whether no class occurs twice.

    Source: Kool, van Hoof & Welling, ICML 2019; Jean et al., ACL 2015.
    """
    if num_sampled < 1 or (unique and num_sampled > num_classes):
        raise ValueError(
            f"num_sampled must be in [1, {num_classes if unique else 'any'}], got {num_sampled}."
        )
    share = class_probabilities(sampler, num_classes)
    true = cast(as_tensor(true_classes), "int32")
    if not unique:
        u = uniform(state, (num_sampled,), 0.0, 1.0, "float32")
        drawn = _with_replacement(u, sampler, share, num_classes)
        expected = [multiply(take_rows(share, c), float(num_sampled)) for c in (true, drawn)]
        return Candidates(drawn, *expected)
    if num_sampled == num_classes:
        drawn = arange(num_classes, dtype="int32")
        return Candidates(drawn, *(ones_like(take_rows(share, c)) for c in (true, drawn)))
    u = maximum(uniform(state, (num_classes,), 0.0, 1.0, "float32"), 1e-30)
    noisy = subtract(log(maximum(share, 1e-30)), log(negative(log(u))))
    values, order = top_k(noisy, num_sampled + 1)
    drawn = cast(get_item(order, slice(None, num_sampled)), "int32")
    smallest = get_item(values, num_sampled)
    counts = negative(expm1(negative(exp(subtract(log(maximum(share, 1e-30)), smallest)))))
    counts = add(counts, 1e-30)
    return Candidates(drawn, take_rows(counts, true), take_rows(counts, drawn))
