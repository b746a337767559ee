"""Write layers.npz: what Keras's own layers give for tests/shared/layer_cases.py, in float64.

On PyTorch, which computes small cases at once; `layers_by_jax` adds what PyTorch cannot compute,
or computes in another way than Keras's other backends (`by_jax` in the cases).

Kept of each case: names and shapes of weights; outputs; the sum of outputs times waves and of
the layer's losses; the gradients of that sum by each trained weight and each input; what a call
leaves in other weights; masks.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"

import facts
import keras
import layer_cases as cases
import numpy as np
import torch

keras.config.set_floatx("float64")


def set_weights(layer: Any) -> None:
    """Set the weights of a built layer to the waves of the cases."""
    layer.set_weights([cases.weight_of(v.name, v.shape, i) for i, v in enumerate(layer.weights)])


def tensors(case: Any) -> list[Any]:
    """Return the inputs of a case, those of floats with a gradient to come."""
    if "high" in case[3]:
        return [torch.tensor(x) for x in cases.inputs_of(case)]
    return [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in cases.inputs_of(case)]


def array(x: Any) -> np.ndarray:
    """Return the numbers of a tensor or a variable."""
    return np.array(keras.ops.convert_to_numpy(x))


def fact_of(case: Any) -> dict[str, Any]:
    """Return what Keras gives for a case."""
    inputs = tensors(case)
    layer, call = cases.arguments(case, keras.layers)
    args = cases.arranged(case, inputs)
    layer(*args, **{k: v for k, v in call.items() if k != "training"})
    set_weights(layer)
    trained = [v.value for v in layer.trainable_variables]
    # The first call may have left gradients' graphs in states: they start again from numbers.
    for variable in layer.non_trainable_variables:
        variable.assign(array(variable))
    many = cases.leaves(layer(*args, **call))
    total = sum(layer.losses) if layer.losses else torch.tensor(0.0)
    for i, t in enumerate(many):
        total = total + (t * torch.tensor(cases.wave(t.shape, 2.0 + i))).sum()
    by = [*trained, *(x for x in inputs if x.requires_grad)]
    slopes = torch.autograd.grad(total, by, materialize_grads=True, allow_unused=True) if by else ()
    found = {
        "weights": [[v.name, list(v.shape)] for v in layer.weights],
        "outputs": [array(t) for t in many],
        "loss": array(total),
        "slopes": [array(g) for g in slopes],
    }
    kept = [array(v) for v in layer.weights if not v.trainable]
    if kept:
        found["after"] = kept
    if "masks" in case[3] or case[3].get("out_mask"):
        mask = layer.compute_mask(args[0], cases.masks_of(case[3].get("masks")))
        found["mask"] = None if mask is None else array(mask).astype(int).tolist()
    return found


def adapted() -> dict[str, Any]:
    """Return what Normalization learns from data."""
    found = {}
    for axis in (-1, None, [1, 2]):
        layer = keras.layers.Normalization(axis=axis)
        data = cases.wave([4, 3, 2], 1.0, 5.0)
        layer.adapt(data)
        moments = [array(w) for w in layer.get_weights()]
        found[json.dumps(axis)] = {"moments": moments, "output": array(layer(data))}
    return found


def normalised() -> list[Any]:
    """Return what SpectralNormalization leaves behind and gives, for two training calls."""
    found = []
    for (name, args), shape in cases.SPECTRAL:
        layer = keras.layers.SpectralNormalization(getattr(keras.layers, name)(**args), 2)
        x = cases.wave(shape, 1.0).astype("float64")
        layer(x)
        set_weights(layer)
        for _ in range(2):
            y = layer(x, training=True)
            found.append([array(y), *(array(w) for w in layer.get_weights())])
    return found


def main(words: list[str]) -> None:
    """Record all cases, or those without facts and those whose names hold one of `words`."""
    old = facts.read("layers")["cases"] if words else {}
    kept = {}
    for name, case in cases.CASES.items():
        if cases.by_jax(case):
            continue
        if name in old and not any(word in name for word in words):
            kept[name] = old[name]
            continue
        try:
            kept[name] = fact_of(case)
        except (ValueError, TypeError, RuntimeError, AttributeError) as error:
            print(f"{name}: no answer on PyTorch: {str(error)[:200]}")
    kept |= {n: f for n, f in old.items() if n in cases.CASES and n not in kept}
    found = {"keras": keras.__version__, "adapt": adapted(), "spectral": normalised()}
    size = facts.write("layers", {**found, "cases": kept})
    print(f"{len(kept)} cases of layers, {size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
