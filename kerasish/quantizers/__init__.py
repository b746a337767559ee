"""Quantization: small integers in the place of floats. Keras's `quantizers` module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kerasish.identifiers import get_by_name
from kerasish.quantizers.calibrated import AWQConfig as AWQConfig
from kerasish.quantizers.calibrated import GPTQConfig as GPTQConfig
from kerasish.quantizers.configs import Float8QuantizationConfig as Float8QuantizationConfig
from kerasish.quantizers.configs import Int4QuantizationConfig as Int4QuantizationConfig
from kerasish.quantizers.configs import Int8QuantizationConfig as Int8QuantizationConfig
from kerasish.quantizers.configs import QuantizationConfig as QuantizationConfig
from kerasish.quantizers.fake_quant import (
    fake_quant_with_min_max_vars as fake_quant_with_min_max_vars,
)
from kerasish.quantizers.float8 import compute_float8_amax_history as compute_float8_amax_history
from kerasish.quantizers.float8 import compute_float8_scale as compute_float8_scale
from kerasish.quantizers.float8 import quantize_and_dequantize as quantize_and_dequantize
from kerasish.quantizers.packing import pack_int4 as pack_int4
from kerasish.quantizers.packing import unpack_int4 as unpack_int4
from kerasish.quantizers.quantizer import AbsMaxQuantizer as AbsMaxQuantizer
from kerasish.quantizers.quantizer import Quantizer as Quantizer
from kerasish.quantizers.quantizer import abs_max_quantize as abs_max_quantize
from kerasish.quantizers.quantizer import (
    abs_max_quantize_grouped_with_zero_point as abs_max_quantize_grouped_with_zero_point,
)
from kerasish.registry import add_builtins, serialize_keras_object
from kerasish.tracebacks import hides_frames
from kerasish.typing import Config

_CLASSES = (
    Quantizer, AbsMaxQuantizer, QuantizationConfig, Int8QuantizationConfig, Int4QuantizationConfig,
    Float8QuantizationConfig, GPTQConfig, AWQConfig,
)  # fmt: skip
add_builtins("keras.quantizers", {c.__name__: c for c in _CLASSES})
add_builtins(
    "keras.quantizers",
    {
        "quantizer": Quantizer, "abs_max_quantizer": AbsMaxQuantizer,
        "quantization_config": QuantizationConfig,
        "int8_quantization_config": Int8QuantizationConfig,
        "int4_quantization_config": Int4QuantizationConfig,
        "float8_quantization_config": Float8QuantizationConfig,
        "gptq_config": GPTQConfig, "awq_config": AWQConfig,
    },
)  # fmt: skip


@hides_frames
def get(identifier: Any, **kwargs: Any) -> Any:
    """Return the quantizer, or config of a quantization, for a name, a config or a class.

    Args:
        identifier: a name, config, class or object; None gives None.
        kwargs: arguments of the constructor, where a name or a class is given.

    Raises:
        ValueError: a name that is not known; the message lists the nearest known ones.

    Example:
        >>> get("abs_max_quantizer", axis=0).axis
        (0,)
    """
    if kwargs and isinstance(identifier, str):
        identifier = {"class_name": identifier, "config": kwargs}
    elif kwargs and isinstance(identifier, type):
        return identifier(**kwargs)
    return get_by_name(identifier, "keras.quantizers", "quantizer")


def serialize(initializer: Any) -> dict[str, Any]:
    """Return a quantizer's config, as files hold it.

    Args:
        initializer: a quantizer, or the config of a quantization (Keras's name of the argument).

    Example:
        >>> serialize(AbsMaxQuantizer())["class_name"]
        'AbsMaxQuantizer'
    """
    return serialize_keras_object(initializer)


@hides_frames
def deserialize(config: Config, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Return the quantizer that `serialize` was given.

    Args:
        config: what `serialize` returned.
        custom_objects: name -> class or function, for names that are not registered; None: none.

    Example:
        >>> deserialize(serialize(AbsMaxQuantizer(axis=0))).axis
        (0,)
    """
    return get_by_name(config, "keras.quantizers", "quantizer", custom_objects)
