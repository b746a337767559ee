"""Quantization of a model: layer after layer."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kerasish.quantizers.configs import resolve

if TYPE_CHECKING:
    from kerasish.engine.layer.layer import Layer
    from kerasish.engine.model.model import Model


class QuantizedModelMixin:
    """The part of a model that quantizes its layers; mixed into `Model`."""

    def quantize(  # Keras's order: a layer's type_check comes second
        self: Any,
        mode: str | None = None,
        config: Any = None,
        filters: Any = None,
        type_check: bool = True,
        **kwargs: Any,
    ) -> None:
        """Quantize the weights of all layers that can be, one layer after the other.

        Each layer's floats are freed before those of the next one are quantized. The model must be
        compiled again before it is trained.

        Args:
            mode: "int8", "int4", "float8", "gptq" or "awq"; None: that of `config`.
            config: a `quantizers.QuantizationConfig`; None: the mode's default.
            filters: which layers: a pattern (or list of patterns) that their names match, or a
                function layer -> bool; None: all.
            type_check: whether layers whose class derives from a quantizable one are left out.
            kwargs: none is known.

        Raises:
            ValueError: a layer is quantized already, or the mode is unknown.
        """
        quantize_model(self, mode, config, filters, type_check, **kwargs)

    def get_quantization_layer_structure(self, mode: str | None = None) -> dict[str, Any] | None:
        """Return the blocks that GPTQ and AWQ quantize one after the other; None: not said.

        A model overrides this where its config is to name no blocks.

        Args:
            mode: "gptq" or "awq"; others need no blocks.

        Returns:
            {"pre_block_layers": layers that the inputs go through first, "sequential_blocks": the
            blocks, each of which takes the result of the one before}, or None.
        """
        return None


def quantize_model(
    model: Model, mode: Any, config: Any, filters: Any, type_check: bool, **kwargs: Any
) -> None:
    """Quantize the layers of a model; see `Model.quantize`."""
    if kwargs:
        raise ValueError(f"quantize: unexpected arguments {sorted(kwargs)}.")
    config = resolve(mode, config)
    chosen = list(_chosen(model, filters))
    for layer in chosen:  # before any layer changes
        layer.check_quantizable()
    refused = []
    for layer in chosen:
        try:
            layer.quantize(config.mode, type_check=type_check, config=config)
        except NotImplementedError as error:
            refused.append(str(error))
    if len(refused) == len(chosen):
        reasons = "; ".join(refused) or "no layer was chosen"
        warnings.warn(f"quantize: nothing was quantized: {reasons}", stacklevel=3)


def _chosen(model: Model, filters: Any) -> Iterator[Layer]:
    """Yield the layers with weights of their own that are to be quantized."""
    for layer in model.flatten_layers(include_self=False):
        if getattr(layer, "quantizes", False) and _passes(layer, filters):
            yield layer


def _passes(layer: Layer, filters: Any) -> bool:
    if filters is None:
        return True
    if callable(filters):
        return bool(filters(layer))
    patterns = [filters] if isinstance(filters, str) else filters
    return any(re.search(pattern, layer.name) for pattern in patterns)
