"""Configs of quantization: the mode, and how weights and activations are quantized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kerasish.dtype_policies import QUANTIZATION_MODES
from kerasish.quantizers.quantizer import AbsMaxQuantizer
from kerasish.registry import deserialize_keras_object, serialize_keras_object
from kerasish.typing import Config

if TYPE_CHECKING:
    from typing_extensions import Self


class QuantizationConfig:
    """How a layer is quantized; the subclasses are the modes.

    Args:
        weight_quantizer: quantizer of the weights; None: that of the mode.
        activation_quantizer: quantizer of the inputs of products; None: they stay floats.

    Example:
        >>> Int8QuantizationConfig().mode
        'int8'
    """

    def __init__(self, weight_quantizer: Any = None, activation_quantizer: Any = None) -> None:
        self.weight_quantizer = weight_quantizer
        self.activation_quantizer = activation_quantizer

    @property
    def mode(self) -> str:
        """The name of the mode."""
        raise NotImplementedError(
            f"{type(self).__name__} names no mode; use Int8QuantizationConfig or another subclass."
        )

    def dtype_policy_string(self) -> str:
        """Return the part of a dtype policy's name for this config."""
        return self.mode

    def get_config(self) -> Config:
        """Return the constructor's arguments, as files hold them."""
        return {
            "weight_quantizer": serialize_keras_object(self.weight_quantizer),
            "activation_quantizer": serialize_keras_object(self.activation_quantizer),
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return the config that `get_config` describes."""
        return cls(**_revived(config))

    @staticmethod
    def weight_quantizer_or_default(config: QuantizationConfig | None, default: Any) -> Any:
        """Return the config's quantizer of weights, or `default` where it has none.

        Args:
            config: a config or None.
            default: a quantizer.
        """
        own = None if config is None else config.weight_quantizer
        return default if own is None else own

    @staticmethod
    def activation_quantizer_or_default(config: QuantizationConfig | None, default: Any) -> Any:
        """Return the config's quantizer of activations (it may be None), or `default` without one.

        Args:
            config: a config or None.
            default: a quantizer.
        """
        return default if config is None else config.activation_quantizer


def _revived(config: Config) -> dict[str, Any]:
    names = ("weight_quantizer", "activation_quantizer")
    return {n: deserialize_keras_object(v) if n in names else v for n, v in config.items()}


class Int8QuantizationConfig(QuantizationConfig):
    """Weights of 8 bits, with a scale for each column.

    Args:
        weight_quantizer: quantizer of the weights, to int8; None: the largest of each column.
        activation_quantizer: quantizer of the inputs of products: "default" for one scale per row;
            None: they stay floats.

    Example:
        >>> Int8QuantizationConfig().activation_quantizer.value_range
        (-127, 127)
    """

    def __init__(self, weight_quantizer: Any = None, activation_quantizer: Any = "default") -> None:
        if isinstance(activation_quantizer, str) and activation_quantizer == "default":
            activation_quantizer = AbsMaxQuantizer()
        super().__init__(weight_quantizer, activation_quantizer)
        _check_weights(self, None)

    @property
    def mode(self) -> str:
        """The name of the mode."""
        return "int8"


def _check_weights(config: QuantizationConfig, value_range: tuple[int, int] | None) -> None:
    quantizer, who = config.weight_quantizer, type(config).__name__
    if quantizer is None:
        return
    if quantizer.output_dtype != "int8":
        raise ValueError(
            f"{who}: weight_quantizer gives int8, got output_dtype={quantizer.output_dtype!r}."
        )
    if value_range is not None and tuple(quantizer.value_range) != value_range:
        raise ValueError(
            f"{who}: weight_quantizer has value_range={value_range}, got {quantizer.value_range}."
        )


class Int4QuantizationConfig(QuantizationConfig):
    """Weights of 4 bits, two in a byte, with a scale for each block of a column.

    Args:
        weight_quantizer: quantizer of the weights, to int8 from -8 to 7, for a scale per column;
            None: the largest number of each.
        activation_quantizer: quantizer of the inputs of products, for a scale per column; None or
            "default": they stay floats.
        block_size: weights of a column that share a scale and a zero point, >= 1; None or -1: all,
            with only a scale.

    Raises:
        ValueError: a block size of another kind, or one together with quantizers.

    Example:
        >>> Int4QuantizationConfig(block_size=32).dtype_policy_string()
        'int4/32'
    """

    def __init__(
        self,
        weight_quantizer: Any = None,
        activation_quantizer: Any = "default",
        block_size: int | None = 128,
    ) -> None:
        if isinstance(activation_quantizer, str) and activation_quantizer == "default":
            activation_quantizer = None
        super().__init__(weight_quantizer, activation_quantizer)
        if block_size is not None and block_size != -1 and block_size <= 0:
            raise ValueError(
                f"Int4QuantizationConfig: block_size is None, -1 or >= 1, got {block_size!r}."
            )
        self.block_size = block_size
        if self.blocks and (weight_quantizer is not None or activation_quantizer is not None):
            raise ValueError(
                "Int4QuantizationConfig: quantizers need block_size=None, a scale per column; got "
                f"block_size={block_size}."
            )
        _check_weights(self, (-8, 7))

    @property
    def blocks(self) -> bool:
        """Whether parts of a column have separate scales."""
        return self.block_size is not None and self.block_size > 0

    @property
    def mode(self) -> str:
        """The name of the mode."""
        return "int4"

    def dtype_policy_string(self) -> str:
        """Return the part of a dtype policy's name for this config."""
        return f"int4/{self.block_size if self.blocks else -1}"

    def get_config(self) -> Config:
        """Return the constructor's arguments, as files hold them."""
        return {**super().get_config(), "block_size": self.block_size}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return the config that `get_config` describes; without a block size one scale per column.

        Files from before there were blocks name none.
        """
        return cls(**{"block_size": None, **_revived(config)})


class Float8QuantizationConfig(QuantizationConfig):
    """The factors of products rounded to float8, for training.

    Example:
        >>> Float8QuantizationConfig().mode
        'float8'
    """

    def __init__(self) -> None:
        super().__init__(None, None)

    @property
    def mode(self) -> str:
        """The name of the mode."""
        return "float8"

    def get_config(self) -> Config:
        """Return the constructor's arguments: none."""
        return {}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return the config."""
        return cls()


_BY_MODE: Mapping[str, type[QuantizationConfig]] = {
    "int8": Int8QuantizationConfig,
    "int4": Int4QuantizationConfig,
    "float8": Float8QuantizationConfig,
}
_CALIBRATED = {"gptq": "GPTQConfig", "awq": "AWQConfig"}


def resolve(mode: Any, config: Any) -> QuantizationConfig:
    """Return the config that a mode, a config, or both mean.

    Args:
        mode: name of the mode; None: that of `config`.
        config: a `QuantizationConfig`, or the name of a mode; None: the mode's default.

    Raises:
        ValueError: neither is given, they disagree, or the mode is unknown or needs a config.
    """
    if isinstance(config, str):
        mode, config = config, None
    if mode is not None and mode not in QUANTIZATION_MODES:
        raise ValueError(f"quantize: mode is one of {QUANTIZATION_MODES}, got {mode!r}.")
    if config is None:
        if mode is None:
            raise ValueError("quantize: give `mode` or `config`.")
        if mode in _CALIBRATED:
            raise ValueError(
                f"quantize: mode {mode!r} calibrates on data; give "
                f"config=quantizers.{_CALIBRATED[mode]}(dataset=..., tokenizer=...)."
            )
        return _BY_MODE[mode]()
    if not isinstance(config, QuantizationConfig):
        raise ValueError(
            f"quantize: config is a QuantizationConfig, got {type(config).__name__}: {config!r}."
        )
    if mode is not None and config.mode != mode:
        raise ValueError(f"quantize: mode={mode!r}, but the config's mode is {config.mode!r}.")
    return config
