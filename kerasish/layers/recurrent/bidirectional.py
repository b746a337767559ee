"""Bidirectional: a recurrent layer over a sequence, and one over it backwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish import ops, registry
from kerasish.engine.layer.layer import Layer
from kerasish.errors import UnknownNameError
from kerasish.layers.options import LayerOptions
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, Array, Shape, Structure

MODES = ("sum", "mul", "concat", "ave", None)


def _renamed(layer: Layer, prefix: str, **changes: Any) -> Any:
    """Return a new layer like `layer`, its name with a prefix."""
    with registry.recalling():
        name = prefix + layer.name.removeprefix(prefix)
        return type(layer).from_config({**layer.get_config(), "name": name, **changes})


class Bidirectional(Layer):
    """A recurrent layer over a sequence and one over it backwards, their outputs merged.

    Args:
        layer: a recurrent layer; a copy of it reads forwards.
        merge_mode: "concat" (along the last axis), "sum", "mul", "ave", or None: both outputs.
        weights: the first weights, those of the forward layer first; None: drawn.
        backward_layer: the layer that reads backwards (its go_backwards differs from the
            other's); None: a copy of `layer`.

    With `return_sequences`, outputs of masked steps are 0, whatever the layers'
    `zero_output_for_mask` was.

    Shape: (n, steps, inputs) -> (n[, steps], 2 units) for "concat".
    Source: Schuster and Paliwal, IEEE Transactions on Signal Processing 1997.

    Example:
        >>> from kerasish import layers
        >>> Bidirectional(layers.GRU(2)).compute_output_shape((None, 3, 4))
        (None, 4)
    """

    layer_role = "recurrent"

    reads_mask = True

    def __init__(
        self,
        layer: Layer,
        merge_mode: str | None = "concat",
        weights: Sequence[Array] | None = None,
        backward_layer: Layer | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        checked: Any = layer
        if not isinstance(checked, Layer):
            raise ValueError(f"Bidirectional: layer must be a layer, got {layer!r}.")
        if backward_layer is not None and not isinstance(backward_layer, Layer):
            raise ValueError(
                f"Bidirectional: backward_layer must be a layer, got {backward_layer!r}."
            )
        if merge_mode not in MODES:
            raise UnknownNameError.of(
                "merge_mode of Bidirectional", merge_mode, [m for m in MODES if m]
            )
        super().__init__(**kwargs)
        read: Any = layer  # any layer with the attributes of `RNN`
        self.merge_mode = merge_mode
        self.forward_layer = _renamed(layer, "forward_")
        if backward_layer is None:
            backwards = not read.go_backwards
            plain = layer.name.removeprefix("forward_")
            self.backward_layer = _renamed(
                layer, "backward_", go_backwards=backwards, name=f"backward_{plain}"
            )
        else:
            self.backward_layer = backward_layer
        self._check_pair()
        both: tuple[Any, Any] = (self.forward_layer, self.backward_layer)
        for one in both:
            if getattr(one, "zero_output_for_mask", None) is not None:
                one.zero_output_for_mask = one.return_sequences
        self.return_sequences = read.return_sequences
        self.return_state = read.return_state
        self.stateful = read.stateful
        self.supports_masking = True
        self._first_weights = weights
        self.input_spec = layer.input_spec

    def _check_pair(self) -> None:
        forward, backward = self.forward_layer, self.backward_layer
        if forward.go_backwards == backward.go_backwards:
            raise ValueError(
                f"{self.display_name()}: layer and backward_layer must differ in go_backwards, "
                f"both have {forward.go_backwards}."
            )
        for name in ("stateful", "return_sequences", "return_state"):
            own, other = getattr(forward, name), getattr(backward, name)
            if own != other:
                raise ValueError(
                    f"{self.display_name()}: layer and backward_layer must agree in {name}, they "
                    f"have {own} and {other}."
                )

    def build(self, sequences_shape: Shape, initial_state_shape: Structure = None) -> None:
        """Build both layers."""
        for layer in (self.forward_layer, self.backward_layer):
            if not layer.built:
                layer.build(sequences_shape)
        if self._first_weights is not None:
            self.built = True
            self.set_weights(self._first_weights)

    @property
    def states(self) -> Structure:
        """The states that both layers keep between calls, or None."""
        forward, backward = self.forward_layer.states, self.backward_layer.states
        return (forward, backward) if forward is not None and backward is not None else None

    def reset_state(self) -> None:
        """Set the states kept between calls to zero."""
        self.forward_layer.reset_state()
        self.backward_layer.reset_state()

    def reset_states(self) -> None:
        """Set the states kept between calls to zero."""
        self.reset_state()

    def call(
        self,
        sequences: Tensor,
        initial_state: Structure = None,
        mask: AnyTensor | None = None,
        training: bool | None = None,
    ) -> Structure:
        """Run both layers and merge."""
        first: list[Any] = [None, None]
        if initial_state is not None:
            states, half = list(initial_state), len(initial_state) // 2
            first = [states[:half], states[half:]]
        options: dict[str, Any] = {"mask": mask, "training": training}
        y = self.forward_layer(sequences, initial_state=first[0], **options)
        z = self.backward_layer(sequences, initial_state=first[1], **options)
        last: tuple[Any, ...] = ()
        if self.return_state:
            last = (*y[1:], *z[1:])
            y, z = y[0], z[0]
        if self.return_sequences:
            z = ops.flip(z, 1)
        merged = self._merge(y, z)
        if self.return_state:
            return (*merged, *last) if self.merge_mode is None else (merged, *last)
        return merged

    def _merge(self, y: Tensor, z: Tensor) -> Structure:
        if self.merge_mode is None:
            return y, z
        if self.merge_mode == "concat":
            return ops.concatenate([y, z], axis=-1)
        if self.merge_mode == "mul":
            return ops.multiply(y, z)
        total = ops.add(y, z)
        return total if self.merge_mode == "sum" else ops.divide(total, 2.0)

    def compute_mask(self, inputs: Tensor, mask: AnyTensor | None = None) -> Structure:
        """Return the input's mask with `return_sequences`, else None; None for states."""
        mask = mask[0] if isinstance(mask, (list, tuple)) else mask
        own = mask if self.return_sequences else None
        outputs = [own, own] if self.merge_mode is None else [own]
        if self.return_state:
            sizes = self.forward_layer.state_size
            count = len(sizes) if isinstance(sizes, (list, tuple)) else 1
            return [*outputs, *[None] * (2 * count)]
        return outputs if self.merge_mode is None else own

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; both layers are written out."""
        config = super().get_config()
        config.pop("weights", None)
        config["layer"] = registry.serialize_keras_object(self.forward_layer)
        config["backward_layer"] = registry.serialize_keras_object(self.backward_layer)
        return config
