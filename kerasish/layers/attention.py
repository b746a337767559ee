"""Attention layers: MultiHeadAttention, GroupQueryAttention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kerasish import ops
from kerasish.engine.layer.masks import without_masks
from kerasish.errors import ShapeError
from kerasish.initializers.initializer import Initializer
from kerasish.layers.activation import Softmax
from kerasish.layers.attention_names import AttentionNames
from kerasish.layers.einsum_dense import EinsumDense
from kerasish.layers.options import KERNEL, KernelOptions
from kerasish.layers.regularization import Dropout
from kerasish.layers.weighted import KernelLayer
from kerasish.ops.networks.attention import attend
from kerasish.signatures import Unpack, with_options
from kerasish.tensor import Tensor
from kerasish.typing import ActivationLike, AnyTensor, Shape, ShapeLike, Structure


class MultiHeadAttention(AttentionNames, KernelLayer):
    """Each target's weighted mean of the values, for several heads, projected to the result.

    weights = softmax(query · key / sqrt(key_dim)) over the sources.

    Args:
        num_heads: number of heads.
        key_dim: size of query and key a head.
        value_dim: size of value per head; None: key_dim.
        dropout: share of weights dropped in training.
        use_bias: whether to add a bias.
        output_shape: sizes of the result's last axes; None: the query's last one.
        attention_axes: the axes attended over; None: all but the first and the last.
        sliding_window: how many places a source may be away, itself included; None: any.
        flash_attention: accepted; the kernel is chosen by the engine.
        kernel_initializer: first values of the kernel: name, config, object or function.
        bias_initializer: first values of the bias: name, config, object or function.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        bias_constraint: function applied to the bias after each update; None: none.
        use_gate: whether the result is multiplied by sigmoid(a projection of the query).
        seed: an integer or a `SeedGenerator`; None: a new seed.

    Shape: query (n, targets, d), value and key (n, sources, d) -> (n, targets, d).

    Source: Vaswani et al., NeurIPS 2017.

    Example:
        >>> from kerasish import Input
        >>> x = Input((5, 8))
        >>> MultiHeadAttention(num_heads=2, key_dim=4)(x, x).shape
        (None, 5, 8)
    """

    names_activity = True

    example: Any = {
        "args": {"num_heads": 2, "key_dim": 3}, "shape": [(2, 4, 6), (2, 5, 6)], "spread": True,
    }  # fmt: skip

    reads_mask = True

    @with_options(KernelOptions, KERNEL)
    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: ShapeLike | None = None,
        attention_axes: int | None = None,
        sliding_window: int | None = None,
        flash_attention: bool | None = None,
        *,
        use_gate: bool = False,
        seed: int | None = None,
        **options: Unpack[KernelOptions],
    ) -> None:
        super().__init__(**options)
        self.supports_masking = True
        _check_flash(self.display_name(), flash_attention, dropout)
        sizes = {"num_heads": num_heads, "key_dim": key_dim, "value_dim": value_dim}
        _check_sizes(self.display_name(), sizes, sliding_window, output_shape)
        self.num_heads, self.key_dim = int(num_heads), int(key_dim)
        self.value_dim = int(value_dim or key_dim)
        self.dropout, self.use_bias, self.seed = dropout, use_bias, seed
        self.output_sizes = (
            None if output_shape is None
            else (output_shape,) if isinstance(output_shape, int) else tuple(output_shape)
        )  # fmt: skip
        self.attention_axes = (
            (attention_axes,) if isinstance(attention_axes, int)
            else None if attention_axes is None else tuple(attention_axes)
        )  # fmt: skip
        self.sliding_window, self.flash_attention = sliding_window, flash_attention
        self.use_gate = use_gate

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        """Make the projections."""
        key_shape = value_shape if key_shape is None else key_shape
        rank = len(query_shape)
        if len(value_shape) != rank or len(key_shape) != rank:
            raise ShapeError(
                f"{self.display_name()}: query, value and key must have one rank, got shapes "
                f"{tuple(query_shape)}, {tuple(value_shape)} and {tuple(key_shape)}."
            )
        self._axes = tuple(a % rank for a in self.attention_axes or range(1, rank - 1))
        heads, groups = self.num_heads, self._key_heads
        self.query_dense = self._project("query", rank, (heads, self.key_dim))
        self.key_dense = self._project("key", rank, (groups, self.key_dim))
        if self.use_gate:  # its place among the weights is after the key's
            self._gate_dense = self._project("gate", rank, (heads, self.value_dim), "sigmoid")
            self._gate_dense.build(query_shape)
        self.value_dense = self._project("value", rank, (groups, self.value_dim))
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape)
        self.value_dense.build(value_shape)
        self._softmax = Softmax(axis=-1, dtype=self.dtype_policy)
        self._dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy, seed=self.seed)
        sizes = self.output_sizes or (query_shape[-1],)
        free, result = "abcdefg"[: rank - 1], "opqrst"[: len(sizes)]
        self.output_dense = EinsumDense(
            f"{free}hv,hv{result}->{free}{result}",
            output_shape=(*query_shape[1:-1], *sizes) if None not in query_shape[1:-1]
            else (*(None,) * (rank - 2), *sizes),
            bias_axes=result if self.use_bias else None,
            name="attention_output", dtype=self.dtype_policy, **self._common(),
        )  # fmt: skip
        self.output_dense.build((*query_shape[:-1], self.num_heads, self.value_dim))

    def _common(self) -> dict[str, Any]:
        names = ("kernel_initializer", "bias_initializer")
        fresh = {n: _renewed(getattr(self, n)) for n in names}
        kept = ("kernel_regularizer", "bias_regularizer", "kernel_constraint", "bias_constraint")
        return {**fresh, **{name: getattr(self, name) for name in kept}}

    @property
    def _key_heads(self) -> int:
        return self.num_heads

    def _project(
        self, name: str, rank: int, sizes: tuple[int, int], activation: ActivationLike | None = None
    ) -> EinsumDense:
        free = "abcdefg"[: rank - 1]
        return EinsumDense(
            f"{free}x,xhk->{free}hk",
            output_shape=(*(None,) * (rank - 2), *sizes),
            bias_axes="hk" if self.use_bias else None,
            activation=activation,
            name=name, dtype=self.dtype_policy, **self._common(),
        )  # fmt: skip

    def call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        query_mask: AnyTensor | None = None,
        value_mask: AnyTensor | None = None,
        key_mask: AnyTensor | None = None,
        attention_mask: AnyTensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
    ) -> Structure:
        """Attend."""
        if return_attention_scores and self.flash_attention:
            raise ValueError(
                f"{self.display_name()}: flash attention does not hold the scores: give "
                "return_attention_scores=False or flash_attention=None."
            )
        key = value if key is None else key
        mask = self._joint_mask(
            query, value, query_mask, value_mask, key_mask, attention_mask, use_causal_mask
        )
        with without_masks(query, key, value):  # they are in the joint one
            gate = self._gate_dense(query) if self.use_gate else None
            q, k, v = self.query_dense(query), self.key_dense(key), self.value_dense(value)
        if return_attention_scores or self.dropout or len(q.shape) != 4 or self._axes != (1,):
            result, weights = self._attend(q, k, v, mask, training)
        else:
            masks = (query_mask, value_mask, key_mask, attention_mask, self.sliding_window)
            causal = use_causal_mask and not any(m is not None for m in masks)
            result, weights = self._attend_plainly(q, k, v, mask, causal), None
        if gate is not None:
            result = ops.multiply(result, gate)
        result = self.output_dense(result)
        return (result, weights) if return_attention_scores else result

    def _attend_plainly(
        self, q: Tensor, k: Tensor, v: Tensor, mask: AnyTensor | None, causal: bool
    ) -> Tensor:
        """Return the result (n, targets, heads, size); `causal`: the mask says that and no more."""
        scale = 1.0 / math.sqrt(self.key_dim)
        if mask is not None:
            targets, sources = [q.shape[1]], [k.shape[1]]
            mask = ops.reshape(mask, _mask_shape(mask.shape, targets, sources, 2))

        def weigh(logits: Tensor, mask: AnyTensor | None) -> Tensor:
            return self._softmax(logits, mask=mask)

        return attend(q, k, v, mask, weigh, causal, self.flash_attention, scale)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: AnyTensor | None, training: Any
    ) -> tuple[Any, Any]:
        """Return (result (n, ..., heads, size), weights (n, ..., heads, targets, sources))."""
        rank = len(q.shape)
        free = [i for i in range(rank - 2) if i not in self._axes]
        order = (*free, rank - 2, *self._axes, rank - 1)
        lead = len(free) + 1

        def flat(x: Tensor) -> Tensor:
            x = ops.transpose(x, order)
            steps = math.prod(x.shape[lead:-1])
            return ops.reshape(x, (*x.shape[:lead], steps, x.shape[-1]))

        targets = [q.shape[a] for a in self._axes]
        sources = [k.shape[a] for a in self._axes]
        q = ops.multiply(q, 1.0 / math.sqrt(self.key_dim))
        scores = ops.matmul(flat(q), ops.swapaxes(flat(k), -1, -2))
        if mask is not None:
            mask = ops.reshape(mask, _mask_shape(mask.shape, targets, sources, lead))
        weights = self._softmax(scores, mask=mask)
        used = self._dropout_layer(weights, training=training) if self.dropout else weights
        result = ops.matmul(used, flat(v))
        result = ops.reshape(result, (*result.shape[:lead], *targets, v.shape[-1]))
        back = tuple(order.index(i) for i in range(rank))
        weights = ops.reshape(weights, (*weights.shape[:lead], *targets, *sources))
        return ops.transpose(result, back), weights

    def _joint_mask(
        self, query: Tensor, value: Tensor, query_mask: AnyTensor | None,
        value_mask: AnyTensor | None, key_mask: AnyTensor | None,
        attention_mask: AnyTensor | None, causal: bool,
    ) -> AnyTensor:  # fmt: skip
        """Return one mask that broadcasts to (n, targets, sources), or None."""
        result = None if attention_mask is None else ops.cast(attention_mask, "bool")
        parts = []
        if query_mask is not None:
            parts.append(ops.expand_dims(ops.cast(query_mask, "bool"), -1))
        for mask in (value_mask, key_mask):
            if mask is not None:
                parts.append(ops.expand_dims(ops.cast(mask, "bool"), -2))
        if causal or self.sliding_window:
            rows = ops.reshape(ops.arange(query.shape[1]), (-1, 1))
            columns = ops.reshape(ops.arange(value.shape[1]), (1, -1))
            if causal:
                parts.append(ops.expand_dims(ops.greater_equal(rows, columns), 0))
            if self.sliding_window:
                away = ops.abs(ops.subtract(rows, columns))
                near = ops.less(away, self.sliding_window)
                parts.append(ops.expand_dims(near, 0))
        for part in parts:
            result = part if result is None else ops.logical_and(result, part)
        return result

    def compute_mask(
        self, query: Tensor, query_mask: AnyTensor | None = None, **kwargs: Any
    ) -> AnyTensor:
        """Return the query's mask."""
        return query_mask

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = super().get_config()
        if "output_shape" in config:
            config["output_shape"] = self.output_sizes
        return config


class GroupQueryAttention(MultiHeadAttention):
    """Attention of many query heads that share fewer heads of keys and values.

    weights = softmax(query · key / sqrt(head_dim)); query head i uses key and value head
    i // (num_query_heads / num_key_value_heads).

    Args:
        head_dim: size of query, key and value per head.
        num_query_heads: number of query heads.
        num_key_value_heads: number of key and value heads, a divisor of num_query_heads.
        dropout: share of weights dropped in training.
        use_bias: whether to add a bias.
        sliding_window: how many steps away, less one, a source may be; None: any.
        flash_attention: accepted; the kernel is chosen by the engine.
        kernel_initializer: first values of the kernel: name, config, object or function.
        bias_initializer: first values of the bias: name, config, object or function.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        bias_constraint: function applied to the bias after each update; None: none.
        use_gate: whether the result is multiplied by sigmoid(a projection of the query).
        seed: an integer or a `SeedGenerator`; None: a new seed.

    Shape: query (n, targets, d), value and key (n, sources, d) -> (n, targets, d).

    Source: Ainslie et al., EMNLP 2023.

    Example:
        >>> from kerasish import Input
        >>> x = Input((5, 8))
        >>> GroupQueryAttention(head_dim=4, num_query_heads=2, num_key_value_heads=1)(x, x).shape
        (None, 5, 8)
    """

    names_activity = False

    example: Any = {
        "args": {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2},
        "shape": [(2, 4, 6), (2, 5, 6)], "spread": True,
    }  # fmt: skip

    @with_options(KernelOptions, KERNEL)
    def __init__(
        self,
        head_dim: int,
        num_query_heads: int,
        num_key_value_heads: int,
        dropout: float = 0.0,
        use_bias: bool = True,
        sliding_window: int | None = None,
        flash_attention: bool | None = None,
        *,
        use_gate: bool = False,
        seed: int | None = None,
        **options: Unpack[KernelOptions],
    ) -> None:
        super().__init__(
            num_query_heads, head_dim, dropout=dropout, use_bias=use_bias,
            sliding_window=sliding_window, flash_attention=flash_attention,
            use_gate=use_gate, seed=seed, **options,
        )  # fmt: skip
        if num_query_heads % num_key_value_heads:
            raise ValueError(
                f"{self.display_name()}: num_query_heads must be a multiple of "
                f"num_key_value_heads, got {num_query_heads} and {num_key_value_heads}."
            )
        self.head_dim, self.num_query_heads = int(head_dim), int(num_query_heads)
        self.num_key_value_heads = int(num_key_value_heads)

    @property
    def _key_heads(self) -> int:
        return self.num_key_value_heads

    def _spread(self, k: Tensor, v: Tensor) -> tuple[Any, Any]:
        """Return keys and values, those of a group repeated for each of its queries' heads."""
        times = self.num_query_heads // self.num_key_value_heads
        return ops.repeat(k, times, axis=-2), ops.repeat(v, times, axis=-2)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: AnyTensor | None, training: bool
    ) -> tuple[Any, Any]:
        return super()._attend(q, *self._spread(k, v), mask, training)

    def _attend_plainly(
        self, q: Tensor, k: Tensor, v: Tensor, mask: AnyTensor | None, causal: bool
    ) -> Tensor:
        return super()._attend_plainly(q, *self._spread(k, v), mask, causal)


def _check_sizes(
    who: str,
    sizes: dict[str, Any],
    window: float | None,
    output_shape: float | Sequence[int] | None,
) -> None:
    for name, size in {**sizes, "sliding_window": window}.items():
        whole = hasattr(size, "__index__") and not isinstance(size, bool)
        if size is None and name in ("value_dim", "sliding_window") or whole and size > 0:
            continue
        raise ValueError(f"{who}: the argument `{name}` must be an integer > 0, got {size!r}.")
    several = output_shape if isinstance(output_shape, (list, tuple)) else [output_shape]
    if output_shape is not None and not all(hasattr(n, "__index__") for n in several):
        raise ValueError(f"{who}: output_shape must be integers, got {output_shape!r}.")


def _check_flash(who: str, flash_attention: bool | None, dropout: float) -> None:
    if flash_attention and dropout > 0:
        raise ValueError(
            f"{who}: flash attention has no dropout: give dropout=0.0 or flash_attention=None."
        )


def _mask_shape(shape: Shape, targets: list[int], sources: list[int], lead: int) -> tuple[int, ...]:
    """Return a mask's shape with the heads' axis put in and the attended axes made flat."""
    tail = len(targets) + len(sources)
    before = list(shape[: len(shape) - tail]) if len(shape) > tail else []
    rows = math.prod(shape[len(shape) - tail : len(shape) - len(sources)])
    columns = math.prod(shape[len(shape) - len(sources) :])
    while len(before) < lead:
        before.append(1)
    return (*before[:lead], rows, columns)


def _renewed(initializer: Initializer) -> Any:
    """Return an equal initializer that draws its own seed."""
    if hasattr(initializer, "get_config"):
        return type(initializer).from_config(initializer.get_config())
    return initializer
