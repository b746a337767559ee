"""The names that subclasses of Keras's `MultiHeadAttention` use of it.

Packages derive layers from `MultiHeadAttention` that keep keys and values of earlier steps. They
read its projections by names such as `_query_dense`, and call `_compute_attention`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.engine.layer.layer import Layer
from kerasish.layers.activation import Softmax
from kerasish.layers.regularization import Dropout
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor

# Keras's name -> that of kerasish.
NAMES = {
    "_num_heads": "num_heads", "_key_dim": "key_dim", "_value_dim": "value_dim",
    "_use_bias": "use_bias", "_dropout": "dropout", "_output_shape": "output_sizes",
    "_attention_axes": "_axes", "_query_dense": "query_dense", "_key_dense": "key_dense",
    "_value_dense": "value_dense", "_output_dense": "output_dense",
}  # fmt: skip


class AttentionNames(Layer):
    """Keras's names for the parts of an attention layer, where a subclass has not set its own."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            own = NAMES.get(name)
            if own is not None and own in self.__dict__:
                return self.__dict__[own]
            return super().__getattr__(name)

    def _get_common_kwargs_for_sublayer(self) -> dict[str, Any]:
        """Return the options of the projections, as a subclass's `build` passes them on."""
        return {**self._common(), "dtype": self.dtype_policy}

    def _build_attention(self, rank: int) -> None:
        """Make the softmax and the dropout of the scores, for inputs with `rank` axes."""
        axes = self.__dict__.get("attention_axes") or range(1, rank - 2)
        self._axes = tuple(a % (rank - 1) for a in axes)
        self._softmax = Softmax(axis=-1, dtype=self.dtype_policy)
        self._dropout_layer = Dropout(
            self.__dict__["dropout"], dtype=self.dtype_policy, seed=self.__dict__["seed"]
        )

    def _compute_attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: AnyTensor | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
    ) -> tuple[Any, Any]:
        """Return (result, weights) of projected inputs (n, steps, heads, size)."""
        return self._attend(query, key, value, attention_mask, training)

    def _common(self) -> dict[str, Any]:
        raise NotImplementedError

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: AnyTensor | None, training: Any
    ) -> tuple[Any, Any]:
        raise NotImplementedError
