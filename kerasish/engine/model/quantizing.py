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
