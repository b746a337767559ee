"""SpectralNormalization: a layer whose kernel keeps the norm 1."""

from __future__ import annotations

from typing import Any

from kerasish import initializers, ops
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.layer.layer import Layer
from kerasish.layers.options import LayerOptions
from kerasish.layers.wrappers import Wrapper
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import Shape


class SpectralNormalization(Wrapper):
    """A layer whose kernel W is divided by its largest singular value in every training step.

    v = normalized u W^T, u = normalized v W, sigma = v W u^T; u is kept from step to step.

    Args:
        layer: one with a `kernel` or `embeddings`.
        power_iterations: how often u and v are improved per step, >= 1.

    Source: Miyato et al., ICLR 2018.

    Example:
        >>> from kerasish import layers
        >>> SpectralNormalization(layers.Dense(2)).compute_output_shape((None, 4))
        (None, 2)
    """

    def __init__(
        self, layer: Layer, power_iterations: int = 1, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(layer, **kwargs)
        if power_iterations <= 0:
            raise ValueError(
                f"{self.display_name()}: power_iterations must be at least 1, got "
                f"{power_iterations}."
            )
        self.power_iterations = power_iterations

    def build(self, input_shape: Shape) -> None:
        """Build the layer, and make u."""
        super().build(input_shape)
        self.input_spec = InputSpec(min_ndim=1, axes={-1: input_shape[-1]})
        result = getattr(self.layer, "kernel", None)
        self.kernel: Any = getattr(self.layer, "embeddings", None) if result is None else result
        if self.kernel is None:
            raise ValueError(
                f"{self.display_name()}: {self.layer!r} has no kernel and no embeddings."
            )
        self.vector_u = self.add_weight(
            name="vector_u", shape=(1, self.kernel.shape[-1]),
            initializer=initializers.TruncatedNormal(stddev=0.02), trainable=False,
        )  # fmt: skip

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        """Normalize the kernel in training, then apply the layer."""
        if training:
            vector, kernel = self.normalized_weights()
            empty = ops.all(ops.equal(self.kernel.value, 0))
            vector = ops.where(empty, self.vector_u.value, vector)
            kernel = ops.where(empty, self.kernel.value, kernel)
            self.vector_u.assign(ops.stop_gradient(vector))
            # The layer reads the new kernel; its gradient is that of the step.
            self.kernel.assign(ops.stop_gradient(kernel))
        y = self.layer(inputs)  # as it is where nothing is cast: it may carry a mask
        return y if y.dtype == inputs.dtype else ops.cast(y, inputs.dtype)

    def normalized_weights(self) -> tuple[Any, Any]:
        """Return (the next u, the kernel divided by its largest singular value)."""
        kernel = self.kernel.value
        matrix = ops.reshape(kernel, (-1, kernel.shape[-1]))
        u = ops.cast(self.vector_u.value, matrix.dtype)
        v = u
        for _ in range(self.power_iterations):
            v = _unit(ops.matmul(u, ops.transpose(matrix)))
            u = _unit(ops.matmul(v, matrix))
        sigma = ops.matmul(ops.matmul(v, matrix), ops.transpose(u))
        return u, ops.reshape(kernel / sigma, kernel.shape)


def _unit(x: Tensor) -> Tensor:
    return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x)), 1e-12))
