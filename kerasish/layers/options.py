"""The arguments that families of layers share, written once: see `kerasish.signatures`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from kerasish import activations
from kerasish.typing import (
    ActivationLike,
    ConstraintLike,
    InitializerLike,
    PolicyLike,
    RegularizerLike,
    SeedLike,
)

_FIRST = {"bias": "zeros", "beta": "zeros", "gamma": "ones", "recurrent": "orthogonal"}


class InputOptions(TypedDict, total=False):
    """Options of every layer except its name and dtype; `Layer` explains the first three.

    The others are older names of the shape of the first input.
    """

    activity_regularizer: RegularizerLike | None
    trainable: bool
    autocast: bool
    input_shape: Sequence[int | None]
    batch_input_shape: Sequence[int | None]
    batch_shape: Sequence[int | None]
    batch_size: int | None


class UnnamedOptions(InputOptions, total=False):
    """`LayerOptions` of a constructor that has a parameter `name`."""

    dtype: PolicyLike | None
    input_dim: int


class NamedOptions(InputOptions, total=False):
    """`LayerOptions` of a constructor that has a parameter `input_dim`."""

    dtype: PolicyLike | None
    name: str | None


class LayerOptions(NamedOptions, total=False):
    """What every layer takes."""

    input_dim: int


class SlopeOptions(LayerOptions, total=False):
    """`LayerOptions`, and Keras 2's name of `negative_slope`."""

    alpha: float


class EmbeddingOptions(NamedOptions, total=False):
    """`NamedOptions`, and Keras 2's length of the sequences, which nothing needs."""

    input_length: int | None


class BiasOptions(LayerOptions, total=False):
    """How a bias starts, its penalty and its constraint."""

    bias_initializer: InitializerLike
    bias_regularizer: RegularizerLike | None
    bias_constraint: ConstraintLike | None


class KernelOptions(BiasOptions, total=False):
    """`BiasOptions`, and the same of a kernel."""

    kernel_initializer: InitializerLike
    kernel_regularizer: RegularizerLike | None
    kernel_constraint: ConstraintLike | None


class LowRankOptions(KernelOptions, total=False):
    """`KernelOptions`, and LoRA's rank and factor."""

    lora_rank: int | None
    lora_alpha: float | None


class DepthwiseOptions(BiasOptions, total=False):
    """`BiasOptions`, and the same of a depthwise kernel."""

    depthwise_initializer: InitializerLike
    depthwise_regularizer: RegularizerLike | None
    depthwise_constraint: ConstraintLike | None


class SeparableOptions(DepthwiseOptions, total=False):
    """`DepthwiseOptions`, and the same of a pointwise kernel."""

    pointwise_initializer: InitializerLike
    pointwise_regularizer: RegularizerLike | None
    pointwise_constraint: ConstraintLike | None


class NormalizationOptions(LayerOptions, total=False):
    """How gamma and beta start, their penalties and constraints."""

    beta_initializer: InitializerLike
    gamma_initializer: InitializerLike
    beta_regularizer: RegularizerLike | None
    gamma_regularizer: RegularizerLike | None
    beta_constraint: ConstraintLike | None
    gamma_constraint: ConstraintLike | None
    rms_scaling: bool


class CellOptions(KernelOptions, total=False):
    """`KernelOptions`, the same of the recurrent kernel, and dropout."""

    recurrent_initializer: InitializerLike
    recurrent_regularizer: RegularizerLike | None
    recurrent_constraint: ConstraintLike | None
    dropout: float
    recurrent_dropout: float
    seed: SeedLike | None
    implementation: int


class RecurrentOptions(CellOptions, total=False):
    """What a recurrent layer takes: what its cell takes, and how it runs over the steps."""

    return_sequences: bool
    return_state: bool
    go_backwards: bool
    stateful: bool
    unroll: bool
    zero_output_for_mask: bool
    time_major: bool


def of_weights(*kinds: str, activity: bool = True) -> dict[str, Any]:
    """Return the defaults of the arguments of some kinds of weights, in the order of Keras.

    Args:
        kinds: such as "kernel" and "bias".
        activity: whether `activity_regularizer` is among the arguments by position.

    Example:
        >>> list(of_weights("kernel", activity=False))
        ['kernel_initializer', 'kernel_regularizer', 'kernel_constraint']
    """
    return {
        **{f"{kind}_initializer": _FIRST.get(kind, "glorot_uniform") for kind in kinds},
        **{f"{kind}_regularizer": None for kind in kinds},
        **({"activity_regularizer": None} if activity else {}),
        **{f"{kind}_constraint": None for kind in kinds},
    }


def of_cells(activity: bool = False) -> dict[str, Any]:
    """Return the defaults of `CellOptions`, as `of_weights` does."""
    weights = of_weights("kernel", "recurrent", "bias", activity=activity)
    return {**weights, "dropout": 0.0, "recurrent_dropout": 0.0, "seed": None}


_LOOP = ("return_sequences", "return_state", "go_backwards", "stateful", "unroll")
KERNEL = of_weights("kernel", "bias")
NORMALIZATION = of_weights("beta", "gamma", activity=False)
CELL = of_cells()
RECURRENT = {**of_cells(activity=True), **dict.fromkeys(_LOOP, False)}


def activation_of(identifier: ActivationLike | None) -> Callable[..., Any]:
    """Return the activation function that a layer's argument names; None: linear.

    Raises:
        ValueError: it is not known, or it takes more than a layer gives: one tensor.
    """
    function = activations.get(identifier)
    if isinstance(identifier, str):
        needed = [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        if len(needed) > 1:
            name = identifier
            raise ValueError(
                f"activation={name!r}: a layer gives it one tensor, and it takes "
                f"{', '.join(needed)}. Give a function of one tensor: "
                f"lambda x: activations.{name}(x, {', '.join(n + '=...' for n in needed[1:])})."
            )
    return function
