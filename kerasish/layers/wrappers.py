"""Layers around another layer: Wrapper, TimeDistributed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish import ops
from kerasish.engine.layer.dropped_masks import LostMask
from kerasish.engine.layer.layer import Layer
from kerasish.errors import ShapeError
from kerasish.layers.options import LayerOptions
from kerasish.signatures import Unpack
from kerasish.typing import AnyTensor, Shape

if TYPE_CHECKING:
    from kerasish.engine.layer.layer import SomeLayer
    from kerasish.tensor import Tensor


class Wrapper(Layer):
    """A layer that holds another.

    Args:
        layer: the layer held.

    Example:
        >>> from kerasish import layers
        >>> Wrapper(layers.Dense(2)).layer.units
        2
    """

    def __init__(self, layer: Layer, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if not isinstance(layer, Layer):
            raise ValueError(f"{self.display_name()}: expected a layer, got {layer!r}.")
        self.layer: SomeLayer = layer  # type: ignore[assignment]

    def build(self, input_shape: Shape | None = None) -> None:
        """Build the layer held."""
        if not self.layer.built:
            self.layer.build(input_shape)


class TimeDistributed(Wrapper):
    """A layer applied to every time step.

    Args:
        layer: the layer.

    Shape: (n, steps, ...) -> (n, steps, result of the layer).

    Example:
        >>> from kerasish import layers
        >>> TimeDistributed(layers.Dense(2)).compute_output_shape((None, 3, 4))
        (None, 3, 2)
    """

    layer_role = "time distributed"

    def __init__(self, layer: Layer, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(layer, **kwargs)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        """Build the layer for one time step."""
        super().build((input_shape[0], *input_shape[2:]))

    def _reads(self, loss: LostMask) -> bool:
        return loss.ndim > 2 and self.layer._reads(loss)  # the mask's steps are inside a step

    def call(
        self, inputs: Tensor, training: bool | None = None, mask: AnyTensor | None = None
    ) -> Tensor:
        """Apply the layer to all steps at once, as one larger batch."""
        n, steps = inputs.shape[:2]
        if mask is not None and tuple(mask.shape[:2]) != (n, steps):
            raise ShapeError(
                f"{self.display_name()}: the mask has shape {tuple(mask.shape)}, the inputs "
                f"{tuple(inputs.shape)}: it needs a value for each of {n} x {steps} steps."
            )
        x = ops.reshape(inputs, (n * steps, *inputs.shape[2:]))
        options: dict[str, Any] = {}
        if self.layer.call_parts.training:
            options["training"] = training
        if "mask" in self.layer.call_parts.masks and mask is not None:
            options["mask"] = ops.reshape(mask, (n * steps, *mask.shape[2:]))
        y = self.layer(x, **options)
        return ops.reshape(y, (n, steps, *y.shape[1:]))
