"""Circle loss: embeddings of one class near each other, of different classes apart."""

from __future__ import annotations

from kerasish import ops
from kerasish.errors import ShapeError
from kerasish.losses.loss import LossFunction
from kerasish.losses.pair import as_float
from kerasish.losses.targets import takes
from kerasish.tensor import Tensor
from kerasish.typing import DTypeLike, TensorLike

_NEVER = -1e30  # in place of the logarithm of 0; keeps gradients finite


@takes("labels")
def circle(
    y_true: TensorLike,
    y_pred: TensorLike,
    ref_labels: TensorLike | None = None,
    ref_embeddings: TensorLike | None = None,
    remove_diagonal: bool = True,
    gamma: float = 80,
    margin: float = 0.4,
) -> Tensor:
    """Return log(1 + sum_n exp(gamma a_n (s_n - m)) * sum_p exp(-gamma a_p (s_p - 1 + m))).

    s_p and s_n are the similarities to references of the same class and of others, held at most
    1; a_p = max(1 + m - s_p, 0) and a_n = max(m + s_n, 0). An embedding whose class no reference
    has does not count in means.

    Args:
        y_true: classes.
        y_pred: embeddings of length 1.
        ref_labels, ref_embeddings: what they are compared with; None: each other.
        remove_diagonal: leave out the comparison of an embedding with the reference of its number
            (itself, where they are compared with each other).
        gamma: scale, > 0.
        margin: m, in [0, 1].

    Shape: (n,) or (n, 1), (n, d) -> (n,)

    Source: Sun et al., Circle loss, 2020.

    Example:
        >>> circle([0, 0, 1], [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).shape
        (3,)
    """
    y_pred = as_float(y_pred)
    y_true = _labels(y_true)
    references = y_pred if ref_embeddings is None else ops.convert_to_tensor(
        ref_embeddings, y_pred.dtype
    )  # fmt: skip
    labels = y_true if ref_labels is None else _labels(ref_labels)
    if y_true.shape != y_pred.shape[:1] or labels.shape != references.shape[:1]:
        raise ShapeError(
            f"circle: one label an embedding is expected, got labels of shapes {y_true.shape} and "
            f"{labels.shape}, embeddings of shapes {y_pred.shape} and {references.shape}."
        )
    similar = ops.minimum(ops.matmul(y_pred, ops.transpose(references)), 1.0)
    same = ops.equal(ops.expand_dims(y_true, 1), ops.expand_dims(labels, 0))
    others = ops.logical_not(same)
    if remove_diagonal:
        itself = ops.eye(y_pred.shape[0], references.shape[0], dtype="bool")
        same = ops.logical_and(same, ops.logical_not(itself))
    pull = ops.relu(ops.subtract(1.0 + margin, similar))
    push = ops.relu(ops.add(similar, margin))
    near = ops.multiply(ops.multiply(pull, ops.subtract(similar, 1.0 - margin)), -float(gamma))
    far = ops.multiply(ops.multiply(push, ops.subtract(similar, margin)), float(gamma))
    values = ops.softplus(ops.add(_logsumexp(near, same), _logsumexp(far, others)))
    values._keras_mask = ops.any(same, 1)
    return values


def _labels(y: TensorLike) -> Tensor:
    y = ops.cast(ops.convert_to_tensor(y), "int32")
    return ops.squeeze(y, -1) if len(y.shape) == 2 and y.shape[-1] == 1 else y


def _logsumexp(x: Tensor, counts: Tensor) -> Tensor:
    return ops.logsumexp(ops.where(counts, x, _NEVER), 1)


class Circle(LossFunction):
    """Circle loss among the embeddings of a batch.

    Args:
        gamma: scale, > 0.
        margin: how far apart the two kinds of similarity should be, in [0, 1].
        remove_diagonal: leave out the comparison of an embedding with itself.
        reduction: "sum_over_batch_size" (the mean), "sum", "mean", "mean_with_sample_weight", or
            None: one number per sample.
        name: name of the loss; None: made from the class.
        dtype: dtype of the computation; None: the default float.

    Source: Sun et al., Circle loss, 2020.

    Example:
        >>> Circle(gamma=1.0)([0, 1], [[1.0, 0.0], [0.0, 1.0]]).item()
        0.0
    """

    def __init__(
        self,
        gamma: float = 80.0,
        margin: float = 0.4,
        remove_diagonal: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "circle",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            circle, reduction, name, dtype,
            remove_diagonal=remove_diagonal, gamma=gamma, margin=margin,
        )  # fmt: skip
