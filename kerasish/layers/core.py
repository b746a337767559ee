"""The everyday layers: Dense, Embedding, Lambda, Masking, Identity."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kerasish import activations, constraints, initializers, ops, registry, regularizers
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.masks import is_of_lengths, joined_mask
from kerasish.layers.functions import find_function, refuse_code
from kerasish.layers.lora import LowRankKernel
from kerasish.layers.options import (
    KERNEL,
    EmbeddingOptions,
    KernelOptions,
    LayerOptions,
    activation_of,
)
from kerasish.layers.quantized import QuantizedKernelLayer
from kerasish.layers.quantized_embedding import QuantizedEmbeddingLayer
from kerasish.layers.quantized_float8 import float8_bias
from kerasish.layers.weighted import KernelLayer
from kerasish.ops.arrays.contraction import affine
from kerasish.quantizers.configs import QuantizationConfig
from kerasish.signatures import Unpack, with_options
from kerasish.tensor import SparseTensor, Tensor
from kerasish.typing import (
    ActivationLike,
    AnyTensor,
    Array,
    Config,
    ConstraintLike,
    InitializerLike,
    RegularizerLike,
    Shape,
    ShapeLike,
    Structure,
    TensorLike,
)


class Dense(QuantizedKernelLayer, LowRankKernel, KernelLayer):
    """activation(x @ kernel + bias), over the last axis.

    Args:
        units: size of the result's last axis, >= 1.
        activation: name or function; None: none.
        use_bias: whether to add a bias.
        kernel_initializer: first values of the kernel: name, config, object or function.
        bias_initializer: first values of the bias: name, config, object or function.
        kernel_regularizer: penalty of the kernel that is added to the loss; None: none.
        bias_regularizer: penalty of the bias that is added to the loss; None: none.
        activity_regularizer: penalty of the result that is added to the loss; None: none.
        kernel_constraint: function applied to the kernel after each update; None: none.
        bias_constraint: function applied to the bias after each update; None: none.
        lora_rank: rank of LoRA, >= 1: the kernel is frozen, and a product of two small weights is
            trained next to it (see `enable_lora`); None: no LoRA.
        lora_alpha: factor of that product, divided by the rank; None: the rank.
        quantization_config: how the weights are quantized where `dtype` is a quantized policy, such
            as "int8_from_float32" (see `quantize`); None: as the policy says.

    Shape: (n, ..., inputs) -> (n, ..., units).

    Example:
        >>> Dense(2).compute_output_shape((None, 3))
        (None, 2)
    """

    layer_role = "dense"
    accepts_sparse = True
    quantizes = True

    example = {"args": {"units": 4, "activation": "relu"}, "shape": (2, 3)}

    @with_options(KernelOptions, KERNEL)
    def __init__(
        self,
        units: int,
        activation: ActivationLike | None = None,
        use_bias: bool = True,
        *,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        quantization_config: QuantizationConfig | Config | None = None,
        **options: Unpack[KernelOptions],
    ) -> None:
        super().__init__(**options)
        self.quantization_config = quantization_config
        if not isinstance(units, int) or isinstance(units, bool) or units < 1:
            raise ValueError(f"{self.display_name()}: units is a number >= 1, got {units!r}.")
        self.units, self.activation = units, activation_of(activation)
        self.use_bias = use_bias
        self.plan_lora(lora_rank, lora_alpha)
        self.input_spec = InputSpec(min_ndim=2)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        """Make kernel (inputs, units) and bias (units,), and LoRA's where a rank is given."""
        size = self._last_size(input_shape)
        mode = self.quantization_mode
        if mode in (None, "float8"):
            self.kernel = self.add_weight_of("kernel", (size, self.units))
        if mode is not None:
            self.quantized_build((size, self.units), mode, self.quantization_config)
        self.bias = self.add_weight_of("bias", (self.units,)) if self.use_bias else None
        self.start_lora()
        self.input_spec = InputSpec(min_ndim=2, axes={-1: size})

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Compute the result."""
        activation = self.activation
        if isinstance(inputs, SparseTensor):
            return self._call_sparse(inputs)
        if self.weight_format:
            return self.quantized_call(inputs, training)
        if activation is activations.relu and not self.lora_enabled:
            return affine(inputs, self._kernel, self.bias, True)
        x = affine(inputs, self._kernel, self.bias)
        if self.lora_enabled:
            x = self.adapt(x, lambda first: ops.matmul(inputs, first))
        return x if activation in (None, activations.linear) else activation(x)

    def _call_sparse(self, inputs: SparseTensor) -> Tensor:
        """Compute the result for a matrix of which some entries are kept."""
        if self.weight_format:
            raise ValueError(
                f"{self.display_name()} is quantized to {self.quantization_mode} and takes dense "
                "inputs: quantize after the layers that read sparse ones, or give x.todense()."
            )
        x = inputs @ self._kernel
        if self.bias is not None:
            x = ops.add(x, self.bias)
        if self.lora_enabled:
            x = self.adapt(x, lambda first: inputs @ first)
        return x if self.activation is None else self.activation(x)

    def quantized_call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Compute the result with quantized weights."""
        bias = self.bias
        if self.weight_format == "float8":
            x = self.float8_product(inputs, self._kernel, ops.matmul, training)
            bias = None if bias is None else float8_bias(bias, self.compute_dtype)
        else:
            x = self.quantized_product(inputs)
        if self.lora_enabled:
            x = self.adapt(x, lambda first: ops.matmul(inputs, first))
        if bias is not None:
            x = ops.add(x, bias)
        return x if self.activation is None else self.activation(x)


class Embedding(QuantizedEmbeddingLayer):
    """Row x of a table, for integers x.

    Args:
        input_dim: rows of the table: one more than the largest number.
        output_dim: size of a row.
        embeddings_initializer: first values of the table: name, config, object or function.
        embeddings_regularizer: penalty of the table; None: none.
        embeddings_constraint: function applied to the table after each update; None: none.
        mask_zero: whether 0 marks padding: the result carries the mask x != 0.
        weights: the table's first values, as an array or a list with one; None: by
            `embeddings_initializer`.
        lora_rank: rank of LoRA, >= 1: the table is frozen, and a product of two small ones is
            trained next to it (see `enable_lora`); None: no LoRA.
        lora_alpha: factor of that product, divided by the rank; None: the rank.
        quantization_config: how the weights are quantized where `dtype` is a quantized policy, such
            as "int8_from_float32" (see `quantize`); None: as the policy says.

    Shape: (n, ...) -> (n, ..., output_dim).

    Example:
        >>> Embedding(10, 4).compute_output_shape((None, 7))
        (None, 7, 4)
    """

    names_activity = True

    layer_role = "embedding"
    quantizes = True

    example = {"args": {"input_dim": 6, "output_dim": 3}, "shape": (2, 4), "dtype": "int32",
               "high": 6}  # fmt: skip

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: InitializerLike = "uniform",
        embeddings_regularizer: RegularizerLike | None = None,
        embeddings_constraint: ConstraintLike | None = None,
        mask_zero: bool = False,
        weights: Sequence[Array] | Array | None = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        quantization_config: QuantizationConfig | Config | None = None,
        **kwargs: Unpack[EmbeddingOptions],
    ) -> None:
        length = kwargs.pop("input_length", None)
        if length is not None and "input_shape" not in kwargs:
            kwargs["input_shape"] = (length,)
        super().__init__(**kwargs)
        self.quantization_config = quantization_config
        for what, size in (("input_dim", input_dim), ("output_dim", output_dim)):
            if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 1:
                raise ValueError(f"{self.display_name()}: {what} is an integer >= 1, got {size!r}.")
        self.input_dim, self.output_dim = int(input_dim), int(output_dim)
        self.embeddings_initializer = initializers.get(embeddings_initializer)
        self.embeddings_regularizer = regularizers.get(embeddings_regularizer)
        self.embeddings_constraint = constraints.get(embeddings_constraint)
        self.plan_lora(lora_rank, lora_alpha)
        self.mask_zero = mask_zero
        self.supports_masking = mask_zero
        self.autocast = False
        self._read_policy()
        if weights is not None:
            self.build()
            self.set_weights(weights if isinstance(weights, (list, tuple)) else [weights])

    @property
    def embeddings(self) -> AnyTensor:
        """The table (input_dim, output_dim); with LoRA the sum that the layer computes with."""
        return self.merged()

    @embeddings.setter
    def embeddings(self, value: Any) -> None:
        self._embeddings = value

    def build(self, input_shape: Shape | None = None) -> None:
        """Make the table (input_dim, output_dim), and LoRA's where a rank is given."""
        mode, shape = self.quantization_mode, (self.input_dim, self.output_dim)
        if mode is None:
            self.embeddings = self.add_weight(
                name="embeddings",
                shape=shape,
                initializer=self.embeddings_initializer,
                regularizer=self.embeddings_regularizer,
                constraint=self.embeddings_constraint,
            )
        else:
            self.quantized_build(shape, mode, self.quantization_config)
        self.start_lora()

    def call(self, inputs: Tensor) -> Tensor:
        """Pick the rows."""
        if inputs.dtype not in ("int32", "int64", "uint8"):
            inputs = ops.cast(inputs, "int32")
        try:
            rows = ops.cast(self.picked_rows(inputs), self.compute_dtype)
            if self.lora_enabled:
                rows = self.adapt(rows, lambda first: ops.take(first, inputs, axis=0))
        except IndexError as error:
            raise IndexError(
                f"{self.display_name()}: {error}. input_dim={self.input_dim} takes indices 0 "
                f"to {self.input_dim - 1}: raise input_dim, or map larger ones to their own index."
            ) from error
        return rows

    def compute_mask(self, inputs: Tensor, mask: AnyTensor | None = None) -> AnyTensor | None:
        """Return x != 0 with `mask_zero`, and where the input's mask is true, if it has one."""
        if not self.mask_zero:
            return mask
        own = ops.not_equal(inputs, 0)
        return own if mask is None else joined_mask(own, mask)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = super().get_config()
        config.pop("weights", None)
        return config


class Lambda(Layer):
    """A user's function as a layer without weights.

    Args:
        function: tensors -> tensors.
        output_shape: the result's shape without the batch axis, where it cannot be inferred;
            None: inferred.
        mask: a mask, or a function (inputs, mask) -> mask; None: the input's mask is dropped.
        arguments: further keyword arguments of the function; None: none.

    Example:
        >>> float(Lambda(lambda x: x * 2)(ops.ones(1))[0])
        2.0
    """

    def __init__(
        self,
        function: Callable[..., Any],
        output_shape: ShapeLike | Callable[..., Any] | None = None,
        mask: AnyTensor | None = None,
        arguments: dict[str, Any] | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.function, self.arguments = function, dict(arguments or {})
        self.result_activation = str(getattr(function, "__name__", ""))
        self.output_shape_given, self.mask = output_shape, mask
        self._names = set(inspect.signature(function).parameters)
        self.supports_masking = mask is not None

    def call(
        self, inputs: Tensor, mask: AnyTensor | None = None, training: bool | None = None
    ) -> Tensor:
        """Call the function."""
        options = dict(self.arguments)
        if "mask" in self._names:
            options["mask"] = mask
        if "training" in self._names:
            options["training"] = training
        return self.function(inputs, **options)

    def compute_mask(self, inputs: Tensor, mask: AnyTensor | None = None) -> Structure:
        """Return the mask given, or what the mask function returns."""
        return self.mask(inputs, mask) if callable(self.mask) else self.mask

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; the function must have a name to go into a file."""
        config = super().get_config()
        config["output_shape"] = self.output_shape_given
        return config

    @classmethod
    def from_config(
        cls,
        config: dict[str, Any],
        custom_objects: Mapping[str, Any] | None = None,
        safe_mode: bool | None = None,
    ) -> Lambda:
        """Return the layer that `get_config` describes.

        Args:
            custom_objects: name -> function, in addition to what was registered.
            safe_mode: accepted for compatibility with Keras: code inside files is run in no mode.

        Raises:
            ValueError: a function is unknown, or is a lambda: files hold no code.
        """
        if custom_objects:
            with registry.CustomObjectScope(custom_objects):
                return cls.from_config(config)
        config = dict(config)
        kinds = {name: config.pop(f"{name}_type", None) for name in ("function", "output_shape")}
        module = config.pop("module", None)
        config.pop("output_shape_module", None)
        if "lambda" in kinds.values():
            refuse_code(config.get("name"))
        for name in ("function", "mask"):
            config[name] = find_function(config.get(name), module, config.get("name"))
        return cls(**config)


class Masking(Layer):
    """Marks the time steps whose features all equal `mask_value` as padding.

    Args:
        mask_value: the number that marks padding.

    Shape: (n, steps, features) -> the same, padding set to 0.

    Example:
        >>> Masking().compute_output_shape((None, 3, 4))
        (None, 3, 4)
    """

    weightless = True
    example = {"args": {}, "shape": (2, 3, 4)}

    def __init__(self, mask_value: float = 0.0, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.mask_value = mask_value
        self.supports_masking = True

    def compute_mask(self, inputs: Tensor, mask: AnyTensor | None = None) -> Tensor:
        """Return True for the steps that are no padding; an earlier mask is dropped, as in Keras.

        That of rows of different lengths is kept.
        """
        real = ops.any(ops.not_equal(inputs, self.mask_value), axis=-1)
        return joined_mask(real, mask) if is_of_lengths(mask) else real

    def call(self, inputs: Tensor) -> Tensor:
        """Set padding to 0."""
        real = ops.any(ops.not_equal(inputs, self.mask_value), axis=-1, keepdims=True)
        return ops.multiply(inputs, ops.cast(real, inputs.dtype))


class Identity(Layer):
    """The input as it is.

    Example:
        >>> Identity().compute_output_shape((None, 3))
        (None, 3)
    """

    layer_role = "pass"

    weightless = True
    example = {"args": {}, "shape": (2, 3)}

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: TensorLike) -> Structure:
        """Return the input."""
        return inputs
