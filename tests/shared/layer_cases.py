"""The cases in which layers meet Keras's numbers; no framework in here.

A case is (layer, constructor's arguments, shape or shapes of inputs, options). Options:

- `mask`: the call's mask or masks; `masks`: those that compute_mask is asked about; `out_mask`:
  compute_mask is asked; `call`: more arguments of the call (lists are masks); `training`
- `spread`: several inputs are several arguments; `states`: inputs after the first are a list, the
  states of a recurrent layer or cell
- `high`: integers below it; `size`: of the waves; `zeros`: two steps are zero
"""

from __future__ import annotations

import json
import math
from typing import Any

import layer_cases_everyday as everyday
import layer_cases_more as more
import layer_cases_recurrent as recurrent
import layer_cases_windows as windows
import numpy as np

SPECTRAL: Any = [
    [["Dense", {"units": 3}], [2, 4]], [["Conv2D", {"filters": 2, "kernel_size": 2}], [2, 3, 3, 2]],
]  # fmt: skip
# Constructor's arguments that are layers: [name, arguments], or a list of such.
INNER = ("layer", "backward_layer", "cell", "cells")


def wave(shape: Any, start: float, size: float = 1.0) -> np.ndarray:
    """Return numbers that anyone can make again: size * sin(start + 0.7 k)."""
    count = math.prod(shape)
    return (size * np.sin(start + 0.7 * np.arange(count))).reshape(shape).astype("float32")


def name_of(case: Any) -> str:
    """Return the words under which a case's facts are kept."""
    name, args, shape, options = case
    return f"{name} {json.dumps([args, shape, options])}"


def several(case: Any) -> bool:
    """Say whether a case has a list of inputs."""
    return isinstance(case[2][0], list)


def inputs_of(case: Any) -> list[np.ndarray]:
    """Return the inputs of a case."""
    _, _, shape, options = case
    many = shape if several(case) else [shape]
    if "high" in options:
        return [(np.arange(math.prod(s)) * 7 % options["high"]).reshape(s) for s in many]
    result = [wave(s, 1.0 + i, options.get("size", 1.0)) for i, s in enumerate(many)]
    if options.get("zeros"):
        result[0][0, 1] = result[0][1, 2] = 0
    return result


def arranged(case: Any, inputs: list[Any]) -> list[Any]:
    """Return the positional arguments of a call."""
    if case[3].get("spread"):
        return inputs
    if case[3].get("states"):
        return [inputs[0], inputs[1:]]
    return [inputs if several(case) else inputs[0]]


def leaves(outputs: Any) -> list[Any]:
    """Return nested outputs as a flat list."""
    if isinstance(outputs, (list, tuple)):
        return [leaf for part in outputs for leaf in leaves(part)]
    return [outputs]


def weight_of(name: str, shape: Any, number: int) -> np.ndarray:
    """Return what a weight is set to; variances are positive."""
    value = wave(shape, 0.3 + number, 0.8)
    return np.abs(value) + np.float32(0.2) if "variance" in name else value


def _built(value: Any, layers: Any) -> Any:
    if isinstance(value[0], list):
        return [_built(one, layers) for one in value]
    return getattr(layers, value[0])(**given(value[1], layers))


def given(args: dict[str, Any], layers: Any) -> dict[str, Any]:
    """Return constructor's arguments with layers in place of their descriptions."""
    return {k: _built(v, layers) if k in INNER and v else v for k, v in args.items()}


def arguments(case: Any, layers: Any) -> tuple[Any, dict[str, Any]]:
    """Return the layer of `layers` that a case is about, and the arguments of its call."""
    name, args, _, options = case
    args = {
        k: tuple(v) if isinstance(v, list) and name == "Softmax" else v for k, v in args.items()
    }
    layer = getattr(layers, name)(**given(args, layers))
    call = {k: np.array(v) == 1 if isinstance(v, list) else v
            for k, v in options.get("call", {}).items()}  # fmt: skip
    if "training" in options:
        call["training"] = options["training"]
    if "mask" in options:
        call["mask"] = masks_of(options["mask"])
    return layer, call


def masks_of(masks: Any) -> Any:
    """Return a mask, or a list of masks and None, as arrays."""
    if masks is None:
        return None
    if masks[0] is not None and isinstance(masks[0][0], int):
        return np.array(masks) == 1
    return [masks_of(m) for m in masks]


_FAMILIES = (*everyday.FAMILIES, *more.FAMILIES, *windows.FAMILIES, *recurrent.FAMILIES)
CASES: dict[str, Any] = {name_of(case): case for family in _FAMILIES for case in family()}


def by_jax(case: Any) -> bool:
    """Say whether Keras on PyTorch computes a case in another way than on its other backends."""
    name, args, _, _ = case
    if args.get("interpolation") == "bicubic":
        return True  # another cubic: -0.75 in place of -0.5
    # The border is repeated there; elsewhere it does not count in the mean.
    return name.startswith("AveragePooling") and args.get("padding") == "same"
