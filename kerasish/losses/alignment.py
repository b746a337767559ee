"""Connectionist temporal classification: a sequence of labels without its timing."""

from __future__ import annotations

from typing import Any

from kerasish import ops
from kerasish.errors import ShapeError
from kerasish.losses.loss import PlainLoss
from kerasish.losses.pair import as_float
from kerasish.losses.targets import takes
from kerasish.tensor import Tensor
from kerasish.typing import TensorLike

_NEVER = -1e30  # in place of the logarithm of 0; keeps gradients finite


@takes("labels")
def ctc(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return -log of the probability of the labels, summed over all their alignments in time.

    Args:
        y_true: classes in [1, classes); 0 pads at the end (and is the blank).
        y_pred: logits.

    Shape: (n, labels), (n, steps, classes) -> (n,)

    Source: Graves et al., Connectionist temporal classification, 2006.

    Example:
        >>> round(ctc([[1]], [[[0.0, 0.0]]]).item(), 4)
        0.6931
    """
    y_pred = as_float(y_pred)
    labels = ops.cast(ops.convert_to_tensor(y_true), "int32")
    if len(y_pred.shape) != 3 or len(labels.shape) != 2 or labels.shape[0] != y_pred.shape[0]:
        raise ShapeError(
            "ctc: expected targets (n, labels) and predictions (n, steps, classes), got "
            f"{labels.shape} and {y_pred.shape}."
        )
    lengths = ops.sum(ops.cast(ops.not_equal(labels, 0), "int32"), 1)
    return -_forward(ops.log_softmax(y_pred, -1), labels, lengths)


def _forward(log_p: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
    """Return the log-probability of each row of labels (formulas 6 to 8 of the paper)."""
    rows, steps, _ = log_p.shape
    states = 2 * labels.shape[1] + 1
    path = _with_blanks(labels)
    index = ops.broadcast_to(ops.expand_dims(path, 1), (rows, steps, states))
    emitted = ops.transpose(ops.take_along_axis(log_p, index, -1), (1, 0, 2))
    # A label may follow the one before it without a blank between them, if the two differ.
    two_before = ops.concatenate([ops.zeros((rows, 2), "int32"), path[:, :-2]], 1)
    is_label = ops.equal(ops.arange(states) % 2, 1)
    may_skip = ops.logical_and(is_label, ops.not_equal(path, two_before))
    begins = ops.less(ops.expand_dims(ops.arange(states), 0), 2)
    never = ops.full((rows, 2), _NEVER, log_p.dtype)

    def advance(reached: Tensor, now: Tensor) -> tuple[Any, Any]:
        one = ops.concatenate([never[:, :1], reached[:, :-1]], 1)
        two = ops.concatenate([never, reached[:, :-2]], 1)
        two = ops.where(may_skip, two, _NEVER)
        reached = ops.add(ops.logsumexp(ops.stack([reached, one, two]), 0), now)
        return reached, reached[:, 0]

    start = ops.where(begins, emitted[0], _NEVER)
    reached = start if steps == 1 else ops.scan(advance, start, emitted[1:])[0]
    places = ops.expand_dims(ops.arange(states), 0)
    gap = ops.subtract(ops.multiply(ops.expand_dims(lengths, 1), 2), places)
    last = ops.logical_and(ops.greater_equal(gap, 0), ops.less_equal(gap, 1))
    return ops.logsumexp(ops.where(last, reached, _NEVER), 1)


def _with_blanks(labels: Tensor) -> Tensor:
    """Return (n, 2 * labels + 1): a blank before, between and after the labels."""
    rows, count = labels.shape
    spaced = ops.stack([ops.zeros_like(labels), labels], 2)
    blank = ops.zeros((rows, 1), "int32")
    return ops.concatenate([ops.reshape(spaced, (rows, 2 * count)), blank], 1)


class CTC(PlainLoss):
    """-log of the probability of a sequence of labels, for any timing.

    Args:
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Source: Graves et al., Connectionist temporal classification, 2006.

    Example:
        >>> round(CTC()([[1]], [[[0.0, 0.0]]]).item(), 4)
        0.6931
    """

    _function = staticmethod(ctc)
