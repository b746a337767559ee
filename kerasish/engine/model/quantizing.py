"""Quantization of a model: layer after layer."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import ops
from kerasish.quantizers.configs import resolve
from kerasish.tensor import to_numpy
from kerasish.typing import Array, Structure

if TYPE_CHECKING:
    from kerasish.engine.layer.layer import Layer
    from kerasish.engine.model.model import Model


class QuantizedModelMixin:
    """The part of a model that quantizes its layers; mixed into `Model`."""

    def quantize(  # Keras's order: a layer's type_check is second
        self: Structure,
        mode: str | None = None,
        config: Structure = None,
        filters: Structure = None,
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
        """Return the blocks that GPTQ and AWQ quantize one after the other; None: not specified.

        A model overrides this where its config should name no blocks.

        Args:
            mode: "gptq" or "awq"; others need no blocks.

        Returns:
            {"pre_block_layers": layers that the inputs go through first, "sequential_blocks": the
            blocks, each of which takes the result of the one before}, or None.
        """
        return None


def quantize_model(
    model: Model,
    mode: Structure,
    config: Structure,
    filters: Structure,
    type_check: bool,
    **kwargs: Any,
) -> None:
    """Quantize the layers of a model; see `Model.quantize`."""
    if kwargs:
        raise ValueError(f"quantize: unexpected arguments {sorted(kwargs)}.")
    config = resolve(mode, config)
    if config.mode in ("gptq", "awq"):
        _calibrate(model, config, filters)
        return
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


def _chosen(model: Model, filters: Structure) -> Iterator[Layer]:
    """Yield the layers with their own weights that should be quantized."""
    for layer in model.flatten_layers(include_self=False):
        if layer.quantizes and _passes(layer, filters):
            yield layer


def _passes(layer: Layer, filters: Structure) -> bool:
    if filters is None:
        return True
    if callable(filters):
        return bool(filters(layer))
    patterns = [filters] if isinstance(filters, str) else filters
    return any(re.search(pattern, layer.name) for pattern in patterns)


# --- GPTQ and AWQ -------------------------------------------------------------------------------


def _calibrate(model: Model, config: Structure, filters: Structure) -> None:
    """Quantize the blocks of a model one after the other, each for the results of those before."""
    structure = config.quantization_layer_structure
    structure = structure or model.get_quantization_layer_structure(config.mode)
    if not structure or not structure.get("sequential_blocks"):
        raise ValueError(
            f"quantize: {config.mode!r} needs the model's blocks; give quantization_layer_structure"
            '={"pre_block_layers": [...], "sequential_blocks": [...]} in the config, or override '
            "get_quantization_layer_structure."
        )
    blocks = structure["sequential_blocks"]
    layers = [list(_products(block, filters)) for block in blocks]
    for layer in (part for parts in layers for part in parts):
        layer.check_quantizable()
    samples = _samples(config)
    for layer in structure.get("pre_block_layers", ()):
        samples = [layer(x) for x in samples]
    for block, parts in zip(blocks, layers):
        with _collecting(parts) as squares:
            for x in samples:
                block(x)
        for layer in parts:
            total, count = squares[id(layer)]
            if count:
                matrix = np.asarray(to_numpy(layer.as_matrix(ops.convert_to_tensor(layer.kernel))))
                layer.take_rounded(config, config.rounded(matrix, total / count))
        samples = [block(x) for x in samples]


def _products(block: Layer, filters: Structure) -> Iterator[Any]:
    for layer in block.flatten_layers(include_self=True):
        own = vars(type(layer)).get("quantizes") and "gptq" in layer.quantization_modes
        if own and _passes(layer, filters):
            yield layer


@contextmanager
def _collecting(layers: list[Any]) -> Iterator[dict[int, tuple[Any, int]]]:
    """Return layer's id -> (sum of x^T x over its inputs' rows x, number of rows), as calls add."""
    squares: dict[int, tuple[Any, int]] = {id(layer): (0.0, 0) for layer in layers}

    def watched(layer: Structure) -> Array:
        call = layer.call

        def noting(inputs: Array, *args: Any, **kwargs: Any) -> Array:
            rows = np.asarray(to_numpy(layer.rows_of(inputs)), "float64")
            rows = rows.reshape(-1, rows.shape[-1])
            total, count = squares[id(layer)]
            squares[id(layer)] = total + rows.T @ rows, count + len(rows)
            return call(inputs, *args, **kwargs)

        return noting

    for layer in layers:
        object.__setattr__(layer, "call", watched(layer))
    try:
        yield squares
    finally:
        for layer in layers:
            object.__delattr__(layer, "call")


def _samples(config: Structure) -> list[Any]:
    """Return the first examples of the config's data, each as a batch of one."""
    if config.dataset is None:
        raise ValueError(f"quantize: {config.mode!r} needs data; give dataset=... in the config.")
    results: list[Any] = []
    for example in config.dataset:
        if len(results) == config.num_samples:
            break
        numbers = example if config.tokenizer is None else config.tokenizer(example)
        array = np.asarray(to_numpy(ops.convert_to_tensor(numbers)))
        array = array if array.dtype.kind == "f" else array.reshape(-1)[: config.sequence_length]
        results.append(ops.convert_to_tensor(array[None]))
    if not results:
        raise ValueError(f"quantize: the dataset of {config.mode!r} holds no example.")
    return results
