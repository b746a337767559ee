"""Losses over many classes, of which each step sees a few."""

from __future__ import annotations

from typing import Any

from kerasish import ops
from kerasish.errors import ShapeError
from kerasish.ops.networks.sampling import Candidates, sample_candidates
from kerasish.random import draw_seed
from kerasish.tensor import Tensor
from kerasish.typing import SeedLike, TensorLike


def candidates(
    true_classes: TensorLike,
    num_sampled: int,
    num_classes: int,
    sampler: Any = "log_uniform",
    unique: bool = True,
    seed: SeedLike | None = None,
) -> Candidates:
    """Return classes drawn for a batch, and the expected counts of the true and the drawn ones.

    Args:
        true_classes: integers of any shape.
        num_sampled: how many classes are drawn.
        num_classes: numbers of classes are below it.
        sampler: "log_uniform" (class 0 the most frequent), "uniform", or a number for each class,
            such as its frequency.
        unique: whether no class occurs twice.
        seed: a number, a SeedGenerator, or None.

    Example:
        >>> drawn = candidates([3, 1], 4, 100, seed=1)
        >>> len(set(drawn.sampled.tolist())), drawn.true_expected.shape
        (4, (2,))
    """
    state = draw_seed(seed)
    return sample_candidates(state, true_classes, num_sampled, num_classes, sampler, unique)


def sampled_softmax(
    weights: TensorLike,
    biases: TensorLike | None,
    labels: TensorLike,
    inputs: TensorLike,
    num_sampled: int,
    sampler: str = "log_uniform",
    unique: bool = True,
    remove_accidental_hits: bool = True,
    seed: SeedLike | None = None,
) -> Tensor:
    """Return -log softmax of the true class among it and a few drawn ones: for training only.

    The logits x · w_c + b_c are made smaller by log(expected count of c), so that with more and
    more classes drawn the loss becomes that of the whole softmax. In a layer's `call`, hand the
    mean to `add_loss`.

    Args:
        weights: one row for each class, (classes, features).
        biases: (classes,), or None.
        labels: true classes, integers (n,) or (n, 1).
        inputs: (n, features).
        num_sampled: how many classes are drawn, for the whole batch.
        sampler: as for `candidates`.
        unique: whether no class is drawn twice.
        remove_accidental_hits: whether a drawn class that is a row's true one is left out there.
        seed: a number, a SeedGenerator, or None.

    Shape: (classes, features), (classes,), (n,), (n, features) -> (n,)

    Source: Bengio & Senécal, IEEE Trans. Neural Networks 19 (2008); Jean et al., ACL 2015.

    Example:
        >>> import numpy as np
        >>> weights, inputs = np.zeros((50, 4)), np.ones((3, 4))
        >>> sampled_softmax(weights, np.zeros(50), np.array([0, 7, 9]), inputs, 5, seed=1).shape
        (3,)
    """
    x, rows = ops.convert_to_tensor(inputs), ops.convert_to_tensor(weights)
    true = ops.cast(labels, "int32")
    true = ops.squeeze(true, -1) if len(true.shape) == 2 and true.shape[1] == 1 else true
    if true.shape != x.shape[:1] or len(x.shape) != 2 or rows.shape[1:] != x.shape[1:]:
        raise ShapeError(
            "sampled_softmax: expected weights (classes, features), labels (n,) and inputs (n, "
            f"features), got {rows.shape}, {true.shape} and {x.shape}."
        )
    result = candidates(true, num_sampled, rows.shape[0], sampler, unique, seed)
    own = ops.sum(ops.multiply(x, ops.take(rows, true, axis=0)), -1)
    others = ops.matmul(x, ops.transpose(ops.take(rows, result.sampled, axis=0)))
    if biases is not None:
        own = ops.add(own, ops.take(biases, true, axis=0))
        others = ops.add(others, ops.take(biases, result.sampled, axis=0))
    own = ops.subtract(own, ops.cast(ops.log(result.true_expected), own.dtype))
    others = ops.subtract(others, ops.cast(ops.log(result.sampled_expected), own.dtype))
    if remove_accidental_hits:
        hit = ops.equal(ops.expand_dims(true, 1), ops.expand_dims(result.sampled, 0))
        others = ops.where(hit, -1e9 if own.dtype != "float16" else -6e4, others)
    logits = ops.concatenate([ops.expand_dims(own, 1), others], axis=1)
    return ops.subtract(ops.logsumexp(logits, 1), own)
