"""Attention without heads or projections: Attention, AdditiveAttention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops, random
from kerasish.engine.layer.layer import Layer
from kerasish.errors import ShapeError
from kerasish.layers.options import LayerOptions
from kerasish.random import SeedGenerator
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, Structure


class Attention(Layer):
    """The mean of the values, weighted by softmax(scores) over the sources.

    scores = scale * query · key, or, with "concat", weight * sum tanh(scale * (query + key)).

    Args:
        use_scale: whether the scores have a learnt factor.
        score_mode: "dot" or "concat".
        dropout: share of weights dropped in training.
        seed: of the dropout; None: drawn.

    Shape: [query (n, targets, d), value (n, sources, e), key (n, sources, d)] -> (n, targets, e);
    without a key the value is it.

    Source: Luong et al., EMNLP 2015.

    Example:
        >>> Attention(use_scale=True).compute_output_shape([(None, 4, 3), (None, 5, 3)])
        (None, 4, 3)
    """

    example: Any = {"args": {"use_scale": True}, "shape": [(2, 4, 3), (2, 5, 3)]}

    reads_mask = True

    def __init__(
        self,
        use_scale: bool = False,
        score_mode: str = "dot",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if score_mode not in ("dot", "concat"):
            raise ValueError(
                f"{self.display_name()}: score_mode is 'dot' or 'concat', got {score_mode!r}."
            )
        self.use_scale, self.score_mode = use_scale, score_mode
        self.dropout, self.seed = dropout, seed
        self.supports_masking = True
        self.scale: Any = None
        self.concat_score_weight: Any = None
        if dropout > 0:
            self.seed_generator = SeedGenerator(seed)

    def build(self, input_shape: Structure) -> None:
        """Make the factors."""
        self._check(input_shape)
        if self.use_scale:
            self.scale = self.add_weight(name="scale", shape=(), initializer="ones")
        if self.score_mode == "concat":
            self.concat_score_weight = self.add_weight(
                name="concat_score_weight", shape=(), initializer="ones"
            )

    def _check(self, shapes: Sequence[Any]) -> None:
        many = isinstance(shapes, (list, tuple)) and all(
            isinstance(s, (list, tuple)) for s in shapes
        )
        if not many or len(shapes) not in (2, 3):
            raise ShapeError(
                f"{self.display_name()}: takes [query, value] or [query, value, key], got {shapes}."
            )

    def _scores(self, query: Tensor, key: Tensor) -> Tensor:
        if self.score_mode == "dot":
            scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
            return scores if self.scale is None else ops.multiply(scores, self.scale)
        both = ops.add(ops.expand_dims(query, -2), ops.expand_dims(key, -3))
        if self.scale is not None:
            both = ops.multiply(both, self.scale)
        return ops.multiply(ops.sum(ops.tanh(both), -1), self.concat_score_weight)

    def call(
        self,
        inputs: Sequence[Tensor],
        mask: object = None,
        return_attention_scores: bool = False,
        training: bool = False,
        use_causal_mask: bool = False,
    ) -> Structure:
        """Attend."""
        query, value = inputs[:2]
        key = inputs[2] if len(inputs) > 2 else value
        masks = [None, None] if mask is None else mask
        if not isinstance(masks, (list, tuple)) or len(masks) not in (2, 3):
            raise ValueError(
                f"{self.display_name()}: takes the masks [query, value] or [query, value, key] "
                f"(None for none), got {mask}."
            )
        scores = self._scores(query, key)
        real = self._real(scores, masks[1], use_causal_mask)
        if real is not None:
            low = -65504.0 if scores.dtype == "float16" else -1e9
            missing = ops.subtract(1.0, ops.cast(real, scores.dtype))
            scores = ops.add(scores, ops.multiply(missing, low))
        weights = ops.softmax(scores, axis=-1)
        if training and self.dropout > 0:
            weights = random.dropout(weights, self.dropout, seed=self.seed_generator)
        result = ops.matmul(weights, value)
        if masks[0] is not None:
            result = ops.multiply(result, ops.expand_dims(ops.cast(masks[0], result.dtype), -1))
        return (result, weights) if return_attention_scores else result

    def _real(self, scores: Tensor, value_mask: AnyTensor | None, causal: bool) -> AnyTensor:
        """Return where a target may look, something that broadcasts to the scores, or None."""
        result = None
        if value_mask is not None:
            result = ops.expand_dims(ops.cast(value_mask, "bool"), -2)
        if causal:
            rows = ops.reshape(ops.arange(scores.shape[-2]), (-1, 1))
            columns = ops.reshape(ops.arange(scores.shape[-1]), (1, -1))
            before = ops.expand_dims(ops.greater_equal(rows, columns), 0)
            result = before if result is None else ops.logical_and(result, before)
        return result

    def compute_mask(
        self, inputs: Sequence[Tensor], mask: Sequence[Any] | None = None
    ) -> AnyTensor:
        """Return the query's mask."""
        return mask[0] if isinstance(mask, (list, tuple)) else mask


class AdditiveAttention(Attention):
    """Attention whose scores are sum(scale * tanh(query + key)) over the features.

    Args:
        use_scale: whether each feature has a learnt factor.
        dropout: share of weights dropped in training.

    Shape: as Attention's.

    Source: Bahdanau et al., ICLR 2015.

    Example:
        >>> AdditiveAttention().compute_output_shape([(None, 4, 3), (None, 5, 3)])
        (None, 4, 3)
    """

    example: Any = {"args": {}, "shape": [(2, 4, 3), (2, 5, 3)]}

    def __init__(
        self, use_scale: bool = True, dropout: float = 0.0, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(use_scale=use_scale, dropout=dropout, **kwargs)

    def build(self, input_shape: Structure) -> None:
        """Make the factors."""
        self._check(input_shape)
        if self.use_scale:
            self.scale = self.add_weight(
                name="scale", shape=(input_shape[0][-1],), initializer="glorot_uniform"
            )

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, and the seed."""
        return {**super().get_config(), "seed": self.seed}

    def _scores(self, query: Tensor, key: Tensor) -> Tensor:
        both = ops.tanh(ops.add(ops.expand_dims(query, -2), ops.expand_dims(key, -3)))
        return ops.sum(both if self.scale is None else ops.multiply(both, self.scale), -1)
