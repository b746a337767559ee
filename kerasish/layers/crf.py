"""CRF: sequences of tags scored as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish import constraints, initializers, ops, registry, regularizers
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.layer.layer import Layer
from kerasish.layers.options import LayerOptions
from kerasish.losses.loss import Loss
from kerasish.losses.reduction import reduce_losses
from kerasish.signatures import Unpack
from kerasish.typing import (
    AnyTensor,
    Array,
    ConstraintLike,
    InitializerLike,
    PolicyLike,
    RegularizerLike,
    Shape,
    Structure,
)

if TYPE_CHECKING:
    from kerasish.engine.training.interface import TrainedModel
    from kerasish.tensor import Tensor


class CRF(Layer):
    """A score for each tag at each step; training and decoding see the sequence as a whole.

    p(tags) ~ exp(Σ_t potentials[t, tag_t] + Σ_t transitions[tag_(t-1), tag_t] + start + end), with
    potentials = inputs @ kernel + bias. Train with `loss=layer.loss`, and read the best tags with
    `layer.decode(potentials)`. MasksMixin steps are as if they were not there.

    Args:
        units: number of tags.
        use_kernel: whether there is a projection; else the inputs are the potentials, and their
            last size must be `units`.
        use_bias: whether the projection has a bias.
        use_boundary: whether the first and the last tag have additional scores.
        kernel_initializer, bias_initializer: of the projection.
        transition_initializer: of the transitions.
        kernel_regularizer, transition_regularizer: penalties; None: none; None: none.
        transition_constraint: of the transitions; None: none.

    Shape: (n, steps, features) -> (n, steps, units).

    Source: Lafferty, McCallum & Pereira, ICML 2001.

    Example:
        >>> layer = CRF(3)
        >>> potentials = layer(ops.ones((2, 4, 5)))
        >>> layer.decode(potentials).shape
        (2, 4)
    """

    example: Any = {"args": {"units": 3}, "shape": (2, 4, 5)}

    def __init__(
        self,
        units: int,
        use_kernel: bool = True,
        use_bias: bool = True,
        use_boundary: bool = True,
        kernel_initializer: InitializerLike = "glorot_uniform",
        bias_initializer: InitializerLike = "zeros",
        transition_initializer: InitializerLike = "zeros",
        kernel_regularizer: RegularizerLike | None = None,
        transition_regularizer: RegularizerLike | None = None,
        transition_constraint: ConstraintLike | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.units, self.use_kernel, self.use_bias = int(units), use_kernel, use_bias
        self.use_boundary = use_boundary
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.transition_initializer = initializers.get(transition_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.transition_regularizer = regularizers.get(transition_regularizer)
        self.transition_constraint = constraints.get(transition_constraint)
        self.supports_masking = True
        self.start: Any = None
        self.end: Any = None

    def build(self, input_shape: Shape) -> None:
        """Make the projection and the transitions."""
        size = input_shape[-1]
        if not self.use_kernel and size != self.units:
            raise ValueError(
                f"{self.display_name()}: without a kernel the inputs' last size must be "
                f"{self.units}, the number of tags, got shape {tuple(input_shape)}."
            )
        self.input_spec = InputSpec(ndim=3, axes={-1: size})
        if self.use_kernel:
            self.kernel = self.add_weight(
                name="kernel", shape=(size, self.units), initializer=self.kernel_initializer,
                regularizer=self.kernel_regularizer,
            )  # fmt: skip
            self.bias: Any = None
            if self.use_bias:
                self.bias = self.add_weight(
                    name="bias", shape=(self.units,), initializer=self.bias_initializer
                )
        self.transitions = self.add_weight(
            name="transitions", shape=(self.units, self.units),
            initializer=self.transition_initializer, regularizer=self.transition_regularizer,
            constraint=self.transition_constraint,
        )  # fmt: skip
        if self.use_boundary:
            for name in ("start", "end"):
                weight = self.add_weight(name=name, shape=(self.units,), initializer="zeros")
                setattr(self, name, weight)

    def call(self, inputs: Tensor) -> Tensor:
        """Return the potentials."""
        if not self.use_kernel:
            return inputs
        x = ops.matmul(inputs, self.kernel)
        return x if self.bias is None else ops.add(x, self.bias)

    @property
    def loss(self) -> CRFLoss:
        """The loss to give to `compile`: -log p(tags), the mean over the rows."""
        return CRFLoss(self)

    def log_likelihood(
        self, potentials: AnyTensor, tags: Tensor, mask: AnyTensor | None = None
    ) -> Tensor:
        """Return log p(tags), (n,), of integers (n, steps)."""
        options = self._options(potentials, mask)
        return ops.crf_log_likelihood(potentials, tags, self.transitions, **options)

    def decode(
        self, potentials: AnyTensor, mask: AnyTensor | None = None, return_scores: bool = False
    ) -> Structure:
        """Return the best tags (n, steps), 0 where masked, and on demand their scores (n,).

        Args:
            potentials: what the layer gives, or the model's `predict`.
            mask: True where a step counts; None: the potentials' own mask, if they carry one.
            return_scores: whether to return a pair.
        """
        options = self._options(potentials, mask)
        tags, scores = ops.crf_decode(potentials, self.transitions, **options)
        return (tags, scores) if return_scores else tags

    def accuracy(self, y_true: AnyTensor, y_pred: Tensor) -> Tensor:
        """Return whether each step's best tag is the true one: a metric for `compile`."""
        result = ops.equal(self.decode(y_pred), ops.cast(y_true, "int32"))
        return ops.cast(result, "float32")

    def _options(self, potentials: AnyTensor, mask: AnyTensor | None) -> dict[str, Any]:
        if not self.built:
            raise ValueError(
                f"{self.display_name()}: call it first, its transitions are not made yet."
            )
        mask = getattr(potentials, "_keras_mask", None) if mask is None else mask
        return {"mask": mask, "start": self.start, "end": self.end}


@registry.register_keras_serializable(package="kerasish")
class CRFLoss(Loss):
    """-log p(tags) of a CRF layer: what its `loss` gives.

    Args:
        layer: the layer, or its name: a model read from a file looks for it among its layers.
        reduction, name, dtype: as for `Loss`.
    """

    def __init__(
        self,
        layer: CRF | str | None = None,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: PolicyLike | None = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self._layer = layer

    def call(self, y_true: AnyTensor, y_pred: AnyTensor) -> Tensor:
        """Return -log p of each row's tags."""
        if not isinstance(self._layer, CRF):
            raise ValueError(
                f"CRFLoss: there is no layer yet, but {self._layer!r}: compile the model with "
                "loss=model.get_layer(...).loss."
            )
        tags = ops.cast(ops.convert_to_tensor(y_true), "int32")
        if len(tags.shape) == 3 and tags.shape[-1] == 1:
            tags = ops.squeeze(tags, -1)
        return ops.negative(self._layer.log_likelihood(y_pred, tags))

    def bind(self, model: TrainedModel) -> None:
        """Take the layer that has the name which a file gave."""
        results = [la for la in model.flatten_layers() if la.name == self._layer]
        if len(results) == 1:
            self._layer = results[0]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, the layer by its name."""
        name = self._layer.name if isinstance(self._layer, CRF) else self._layer
        return {**super().get_config(), "layer": name}

    def __call__(self, y_true: AnyTensor, y_pred: AnyTensor, sample_weight: Array = None) -> Tensor:
        """Return the loss, weighted by row and reduced."""
        values = ops.cast(self.call(y_true, y_pred), self.dtype)
        return reduce_losses(values, sample_weight, None, self.reduction)
