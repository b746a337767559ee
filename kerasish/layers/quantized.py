"""Layers whose large weight may be quantized: their variables, files and LoRA."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish import dtype_policies, ops, quantizers
from kerasish.engine.layer.weights import loaded_by_number
from kerasish.layers.lora import LowRankLayer
from kerasish.layers.quantized_calibrated import CalibratedLayer
from kerasish.layers.quantized_float8 import PARTS, Float8Layer
from kerasish.ops.networks.quantized import dequantize, integer_matmul, packed_product, unpack
from kerasish.quantizers.configs import QuantizationConfig, resolve
from kerasish.tensor import Tensor, Variable, to_numpy
from kerasish.typing import Array, Structure

INT4_RANGE = (-8, 7)
_LORA_MODES = ("int8", "int4")  # of layers with LoRA


class QuantizedLayer(LowRankLayer):
    """A layer whose large weight may be quantized, before or after it is saved.

    A quantized weight is an integer variable that is not trained, with scales next to it. A layer
    made with a quantized dtype policy (`dtype="int8_from_float32"`) has these from the start.

    Attributes:
        quantization_config: how it is quantized; None: as the dtype policy says.
        weight_format: the mode of the weights that the layer holds now; "": floats.
        quantizes: whether exactly this class can be quantized; subclasses set it themselves.
        quantization_modes: the modes that the class has.
    """

    quantization_config: Any = None
    weight_format = ""
    quantizes = False
    quantization_modes: tuple[str, ...] = ("int8", "int4")
    _adapted_shape: tuple[int, ...] = ()

    # --- quantizing ----------------------------------------------------------------------------

    def quantize(
        self, mode: str | None = None, type_check: bool = True, config: Structure = None
    ) -> None:
        """Replace the layer's large weight by small integers and scales.

        The layer computes with these from now on, and files hold them. LoRA may be enabled before
        (int8 and int4: its small weights stay as they are, and files hold the sum) or afterwards.
        A model must be compiled again before it is trained.

        Args:
            mode: "int8", "int4", "float8", "gptq" or "awq"; None: that of `config`.
            type_check: whether a subclass refuses, which may compute in another way.
            config: a `quantizers.QuantizationConfig`, or a mode; None: the mode's default.

        Raises:
            ValueError: the layer is not built or is quantized already; the mode is unknown, or not
                one for a layer with LoRA.
            NotImplementedError: this class, or this mode of it, cannot be quantized.

        Example:
            >>> from kerasish import layers
            >>> dense = layers.Dense(4)
            >>> dense.build((None, 8))
            >>> dense.quantize("int8")
            >>> dense.kernel.dtype, dense.dtype_policy.name
            ('int8', 'int8_from_float32')
        """
        config = resolve(mode, config)
        self.check_quantizable()
        if type_check and not vars(type(self)).get("quantizes"):
            raise NotImplementedError(
                f"{self.display_name()}: a subclass may compute in another way than its parent; "
                "quantize(..., type_check=False) quantizes it as its parent."
            )
        if config.mode not in self.quantization_modes:
            raise NotImplementedError(
                f"{self.display_name()}: has the modes {self.quantization_modes}, got "
                f"{config.mode!r}."
            )
        if self.lora_enabled and config.mode not in _LORA_MODES:
            raise ValueError(
                f"{self.display_name()}: LoRA is on, and supports floats, int8 and int4, not "
                f"{config.mode!r}. Save the weights, which merges LoRA's product, and load them "
                "into a model without LoRA."
            )
        source = self.own_policy()
        policy = dtype_policies.get(f"{config.dtype_policy_string()}_from_{source.name}")
        self.quantization_config = config
        with self.adding_weights():
            self.quantize_weights(config)
        self.weight_format = config.mode
        self.dtype_policy = policy

    def quantize_weights(self, config: QuantizationConfig) -> None:
        """Replace the large weight of floats by integers and scales."""
        old = self.named_variable(self.adapted)
        assert old is not None
        arrays = self.quantized_arrays(np.asarray(to_numpy(old)), config)
        self.drop_weight(old)
        self.quantized_build(tuple(old.shape), config.mode, config)
        for name, array in arrays.items():
            variable = self.named_variable(name)
            if variable is not None:
                variable.assign(array)

    def quantized_arrays(self, weight: Array, config: Structure) -> dict[str, Array]:
        """Return name -> array of the variables that replace floats; subclasses say which."""
        raise NotImplementedError(f"{self.display_name()} does not say how it is quantized.")

    def quantized_build(self, shape: tuple[int, ...], mode: str, config: Structure = None) -> None:
        """Make the variables of a mode; subclasses say which.

        Args:
            shape: shape of the float weight.
            mode: name of the mode.
            config: a `quantizers.QuantizationConfig`; None: as the dtype policy says.
        """
        raise NotImplementedError(f"{self.display_name()} has no variables for mode {mode!r}.")

    def config_for(self, mode: str) -> Structure:
        """Return the config of the quantization: what was given, or what the dtype policy says."""
        if self.quantization_config is not None:
            return self.quantization_config
        if mode == "int4":
            return quantizers.Int4QuantizationConfig(
                block_size=getattr(self.own_policy(), "block_size", None)
            )
        return resolve(mode, None) if mode in ("int8", "float8") else None

    def drop_weight(self, variable: Variable) -> None:
        """Drop a variable that quantized ones replace."""
        self._weights = [v for v in self._weights if v is not variable]

    def constant(self, name: str, shape: tuple[int, ...], value: float, dtype: str) -> Variable:
        """Return a new variable that is not trained.

        Args:
            name: the last part of its path.
            value: 0 or 1.
        """
        return self.add_weight(
            name=name, shape=shape, initializer="ones" if value else "zeros", dtype=dtype,
            trainable=False,
        )  # fmt: skip

    def index_of_groups(self, rows: int, block: int) -> Variable:
        """Return a new variable "g_idx": the group of each row, as floats, as in Keras's files."""
        result = self.constant("g_idx", (rows,), 0.0, "float32")
        result.assign(np.floor_divide(np.arange(rows, dtype="float32"), np.float32(block)))
        return result

    def _check_lora(self, rank: int) -> None:
        super()._check_lora(rank)
        if self.weight_format not in ("", *_LORA_MODES):
            raise NotImplementedError(
                f"{self.display_name()}: LoRA supports floats, int8 and int4, not "
                f"{self.weight_format!r}; quantize to one of these."
            )

    # --- files ---------------------------------------------------------------------------------

    @property
    def variable_serialization_spec(self) -> dict[str | None, list[str]]:
        """Names of the variables in the order of files, for each mode; None: not quantized."""
        raise NotImplementedError(f"{self.display_name()} names no variables.")

    def named_variable(self, name: str) -> Variable | None:
        """Return the variable that `variable_serialization_spec` calls so, if there is one."""
        own = self.__dict__
        value = own.get(f"_{name}", own.get(name))
        return value if hasattr(value, "assign") else None

    def stored_variables(self) -> list[Variable]:
        """Return the variables in the order of files; those of LoRA are last."""
        if not self.weight_format:
            return super().stored_variables()
        names = self.variable_serialization_spec[self.weight_format]
        first = [v for v in map(self.named_variable, names) if v is not None]
        known = {id(v) for v in first}
        return [*first, *(v for v in self.own_variables() if id(v) not in known)]

    def save_own_variables(self, store: dict[Any, Any]) -> None:
        """Put the variables into `store`; LoRA's product is merged into the quantized weight."""
        if not self.lora_enabled or not self.weight_format:
            super().save_own_variables(store)
            return
        merged = self.merged_arrays()
        for i, v in enumerate(self._stored()):
            store[str(i)] = merged.get(id(v), to_numpy(v))

    def merged_arrays(self) -> dict[int, Array]:
        """Return id of variable -> its array with LoRA's product merged in."""
        weight = np.asarray(to_numpy(self.merged()))
        arrays = self.quantized_arrays(weight, self.quantization_config)
        named = [(self.named_variable(name), array) for name, array in arrays.items()]
        return {id(v): array for v, array in named if v is not None}

    @loaded_by_number(unless="lora_enabled")
    def load_own_variables(self, store: Structure) -> None:
        """Set the variables from `store`; LoRA starts at a product of zero again."""
        super().load_own_variables(store)

    def adapted_shape(self) -> tuple[int, ...]:
        """Return the shape of the weight that LoRA adapts, as it is without quantization."""
        return self._adapted_shape or super().adapted_shape()

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = super().get_config()
        config.pop("quantization_config", None)
        if vars(type(self)).get("quantizes") and self.quantization_config is None:
            config["quantization_config"] = None
        elif self.quantization_config is not None and self.weight_format not in ("gptq", "awq"):
            config["quantization_config"] = quantizers.serialize(self.quantization_config)
        return config


class QuantizedKernelLayer(CalibratedLayer, Float8Layer, QuantizedLayer):
    """A quantized layer that multiplies its inputs by a kernel.

    What follows is written for the kernel as a matrix (inputs, units). A layer whose kernel has
    another form overrides the methods that turn it into one.
    """

    bias: Any
    _kernel: Any
    quantization_modes = ("int8", "int4", "float8", "gptq", "awq")

    def reduced_axes(self) -> tuple[int, ...]:
        """Return the kernel's axes over which products are summed."""
        return (0,)

    def rows_of(self, inputs: Array) -> Array:
        """Return inputs as rows (..., inputs of the kernel as a matrix)."""
        return inputs

    def matrix_sizes(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return (inputs, units) of the kernel of this shape."""
        return shape[0], shape[1]

    def as_matrix(self, kernel: Array) -> Array:
        """Return the kernel as a matrix."""
        return kernel

    def as_kernel(self, matrix: Array) -> Array:
        """Return what `as_matrix` was given."""
        return matrix

    def scale_of_result(self, scale: Array) -> Array:
        """Return the scales of a kernel, sizes of 1 along `reduced_axes`, as files hold them."""
        return scale[0]

    # --- quantizing ----------------------------------------------------------------------------

    def quantized_build(self, shape: tuple[int, ...], mode: str, config: Structure = None) -> None:
        """Make the variables of a mode.

        Args:
            shape: shape of the float kernel.
            mode: name of the mode.
            config: a `quantizers.QuantizationConfig`; None: as the dtype policy says.
        """
        self._adapted_shape = tuple(shape)
        config = self.config_for(mode) if config is None else config
        rows, columns = self.matrix_sizes(tuple(shape))
        if mode == "int8":
            self._kernel = self.constant("kernel", tuple(shape), 0.0, "int8")
            self.kernel_scale = self.constant(
                "kernel_scale", self.scale_shape(tuple(shape)), 1.0, self.variable_dtype
            )
        elif mode == "int4":
            self._kernel = self.constant("kernel", (rows, -(-columns // 2)), 0.0, "int8")
            blocks = config.blocks
            groups = -(-rows // config.block_size) if blocks else 1
            scales = (groups, columns) if blocks else (columns,)
            self.kernel_scale = self.constant("kernel_scale", scales, 1.0, self.variable_dtype)
            if blocks:
                self.kernel_zero = self.constant("kernel_zero", scales, 0.0, "int8")
                self.g_idx = self.index_of_groups(rows, config.block_size)
        elif mode == "float8":
            self.float8_build()
        elif mode in ("gptq", "awq"):
            policy = self.own_policy() if config is None else config
            self.build_calibrated(mode, rows, columns, policy)
        else:
            raise NotImplementedError(f"{self.display_name()}: has no mode {mode!r}.")
        self.quantization_config = config
        self.weight_format = mode

    def scale_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the scales of a kernel of 8 bits."""
        reduced = self.reduced_axes()
        ones = [1 if axis in reduced else size for axis, size in enumerate(shape)]
        return np.shape(self.scale_of_result(np.ones(ones, "int8")))

    def quantize_weights(self, config: QuantizationConfig) -> None:
        """Replace the float kernel; with float8 it stays."""
        if config.mode in ("gptq", "awq"):
            raise NotImplementedError(
                f"{self.display_name()}: {config.mode!r} collects the inputs of a model's layers; "
                "call quantize on the model."
            )
        if config.mode == "float8":
            self.quantized_build(tuple(self._kernel.shape), config.mode, config)
        else:
            super().quantize_weights(config)

    def quantized_arrays(self, weight: Array, config: Structure) -> dict[str, Array]:
        """Return name -> array of the variables that replace a float kernel."""
        if config.mode == "int8":
            q, scale = quantized_along(weight, self.reduced_axes(), config)
            return {"kernel": to_numpy(q), "kernel_scale": self.scale_of_result(to_numpy(scale))}
        matrix = np.asarray(self.as_matrix(weight))
        if config.blocks:
            q, scale, zero = quantizers.abs_max_quantize_grouped_with_zero_point(
                matrix, config.block_size
            )
            more = {"kernel_scale": to_numpy(scale), "kernel_zero": to_numpy(zero)}
        else:
            q, scale = quantized_along(matrix, (0,), config, INT4_RANGE)
            more = {"kernel_scale": to_numpy(scale)[0]}
        packed, _, _ = quantizers.pack_int4(q, axis=-1)
        return {"kernel": to_numpy(packed), **more}

    # --- the weights as floats -----------------------------------------------------------------

    def integer_kernel(self) -> Array:
        """Return the kernel's integers in its own shape; of GPTQ and AWQ its floats."""
        if self.weight_format in ("gptq", "awq"):
            return self.as_kernel(self.calibrated_matrix())
        if self.weight_format == "int8":
            return self._kernel
        _, columns = self.matrix_sizes(self._adapted_shape)
        return self.as_kernel(unpack(self._kernel, columns, 4))

    def float_kernel(self) -> Tensor:
        """Return the quantized kernel as floats."""
        return self.as_kernel(self.float_matrix())

    def float_matrix(self) -> Tensor:
        """Return the quantized kernel as floats, as a matrix (inputs, units)."""
        if self.weight_format in ("gptq", "awq"):
            return self.calibrated_matrix()
        scale, zero, block, bits = self.packing()
        _, columns = self.matrix_sizes(self._adapted_shape)
        return dequantize(self.packed_matrix(), scale, zero, columns, block, bits)

    def packed_matrix(self) -> Array:
        """Return the integers as stored in memory, as a matrix."""
        return self.as_matrix(self._kernel) if self.weight_format == "int8" else self._kernel

    def packing(self) -> tuple[Any, Any, int, int]:
        """Return (scale, zero, block, bits), as `packed_product` takes them."""
        rows, columns = self.matrix_sizes(self._adapted_shape)
        bits = 8 if self.weight_format == "int8" else 4
        if bits == 4 and self.quantization_config.blocks:
            return self.kernel_scale, self.kernel_zero, self.quantization_config.block_size, bits
        scale = ops.divide(1.0, self.scales_of_columns())
        scale = ops.reshape(scale, (1, columns))
        return scale, ops.zeros((1, columns), "int8"), max(rows, 1), bits

    def scales_of_columns(self) -> Array:
        """Return the scales (units,) of a kernel with one scale per column."""
        return self.kernel_scale

    def merged(self) -> Array:
        """Return the kernel: floats, or integers where it is quantized and LoRA is off."""
        if self.weight_format in ("", "float8"):
            return super().merged()
        if not self.lora_enabled:
            return self.integer_kernel()
        product = ops.multiply(ops.matmul(*self.lora_parts("float32")), self.lora_scale)
        return ops.add(self.float_kernel(), product)

    @property
    def variable_serialization_spec(self) -> dict[str | None, list[str]]:
        """Names of the variables in the order of files, for each mode; None: not quantized."""
        first = ["kernel", "bias"]
        return {
            None: first,
            "int8": [*first, "kernel_scale"],
            "int4": [*first, "kernel_scale", "kernel_zero", "g_idx"],
            "float8": [*first, *(f"{p}_{n}" for p in PARTS for n in ("scale", "amax_history"))],
            "gptq": ["bias", "quantized_kernel", "kernel_scale", "kernel_zero", "g_idx"],
            "awq": [
                "bias",
                "quantized_kernel",
                "kernel_scale",
                "kernel_zero",
                "awq_scales",
                "g_idx",
            ],
        }

    # --- products ------------------------------------------------------------------------------

    @property
    def inputs_quantizer(self) -> Any:
        """The quantizer of the inputs of an int8 or int4 layer; None: they stay floats."""
        if self.weight_format not in ("int8", "int4"):
            raise AttributeError(f"{self.name!r} has no inputs_quantizer: it is not quantized so.")
        return self.quantization_config.activation_quantizer

    def quantized_product(self, rows: Tensor) -> Tensor:
        """Return rows @ kernel for rows (..., inputs) -> (..., units), in the compute dtype."""
        if self.weight_format in ("gptq", "awq"):
            return ops.matmul(rows, ops.cast(self.calibrated_matrix(), rows.dtype))
        config = self.quantization_config
        quantizer = config.activation_quantizer
        _, columns = self.matrix_sizes(self._adapted_shape)
        if quantizer is not None:
            matrix = unpack(self.packed_matrix(), columns, 8 if config.mode == "int8" else 4)
            return integer_product(rows, matrix, self.scales_of_columns(), quantizer)
        scale, zero, block, bits = self.packing()
        x, scale = (ops.cast(part, "float32") for part in (rows, scale))
        y = packed_product(
            x, self.packed_matrix(), scale, zero, units=columns, block=block, bits=bits
        )
        return ops.cast(y, rows.dtype)


def quantized_along(
    weight: Array, axes: tuple[int, ...], config: QuantizationConfig | None,
    value_range: tuple[int, int] = (-127, 127),
) -> tuple[Any, Any]:  # fmt: skip
    """Return a weight as integers, and their scale, as the config's quantizer of weights says.

    Args:
        axes: what shares a scale where that quantizer names none.
        value_range: lowest and highest integer where the config has no quantizer.
    """
    default = quantizers.AbsMaxQuantizer(axis=axes, value_range=value_range)
    quantizer = QuantizationConfig.weight_quantizer_or_default(config, default)
    if getattr(quantizer, "axis", axes) is None:
        return quantizer(weight, axis=axes, to_numpy=True)
    return quantizer(weight, to_numpy=True)


def integer_product(rows: Tensor, matrix: Array, scales: Structure, quantizer: Structure) -> Tensor:
    """Return rows @ (matrix / scales), with rows quantized on the way.

    The gradient is that of the product with floats: rounding is passed straight through.

    Args:
        rows: float tensor (..., inputs).
        matrix: int8 tensor (inputs, units).
        scales: float tensor (units,).
        quantizer: quantizer of the rows.
    """

    @ops.custom_gradient
    def product(x: Tensor) -> Array:
        q, scale = quantizer(x, axis=-1)
        y = ops.cast(integer_matmul(q, matrix), x.dtype)
        result = ops.divide(y, ops.multiply(scales, scale))

        def gradient(*args: Any, upstream: Structure = None) -> Tensor:
            g = args[0] if upstream is None else upstream
            floats = ops.divide(ops.cast(matrix, g.dtype), scales)
            return ops.matmul(g, ops.transpose(floats))

        return result, gradient

    return product(rows)
