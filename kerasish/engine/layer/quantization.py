"""What a layer does about quantization: its mode, and the refusal of classes that have none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish.dtype_policies import DTypePolicy, DTypePolicyMap
from kerasish.typing import Structure


class QuantizationMixin:
    """The part of a layer that says how its weights are quantized; mixed into `Layer`."""

    quantizes = False  # whether the class has weights that can be quantized
    quantization_modes: tuple[str, ...] = ()
    _policy: Any
    _path: str
    built: bool

    if TYPE_CHECKING:

        def display_name(self) -> str:
            """Return the class and the name, for messages."""

    @property
    def quantization_mode(self) -> str | None:
        """How the weights are quantized, as the dtype policy says; None: not."""
        return self.own_policy().quantization_mode

    def own_policy(self) -> DTypePolicy:
        """Return the dtype policy of this layer itself, where the policy is a map of layers."""
        own = self._policy
        return own[self._path] if isinstance(own, DTypePolicyMap) else own

    def quantize(
        self, mode: str | None = None, type_check: bool = True, config: Structure = None
    ) -> None:
        """Quantize the layer's weights; layers that can override this.

        Raises:
            ValueError: the layer is not built, or quantized already.
            NotImplementedError: this class cannot be quantized.
        """
        self.check_quantizable()
        raise NotImplementedError(
            f"{self.display_name()}: {type(self).__name__} cannot be quantized; Dense, EinsumDense,"
            " Embedding and ReversibleEmbedding can."
        )

    def quantized_build(self, shape: tuple[int, ...], mode: str, config: Structure = None) -> None:
        """Make the variables of a mode; layers that can be quantized override this.

        Args:
            shape: shape of the float weight.
            mode: name of the mode.
            config: a `quantizers.QuantizationConfig`; None: as the dtype policy says.

        Raises:
            NotImplementedError: this class cannot be quantized.
        """
        raise NotImplementedError(
            f"{self.display_name()}: {type(self).__name__} has no quantized weights."
        )

    def quantized_call(self, *args: Any, **kwargs: Any) -> Structure:
        """Compute the result with quantized weights; layers that can be quantized override this.

        Raises:
            NotImplementedError: this class cannot be quantized.
        """
        raise NotImplementedError(
            f"{self.display_name()}: {type(self).__name__} has no quantized weights."
        )

    def check_quantizable(self) -> None:
        """Raise ValueError if the layer is not built, or quantized already."""
        if not self.built:
            raise ValueError(
                f"{self.display_name()}: quantize needs weights; build the layer or call it on "
                "data first."
            )
        if self.quantization_mode is not None:
            raise ValueError(
                f"{self.display_name()}: is quantized already, by the dtype policy "
                f"{self.own_policy().name!r}."
            )
