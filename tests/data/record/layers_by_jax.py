"""Add to layers.npz what Keras's layers give on JAX, for the cases that `layers` leaves out."""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
# The arithmetic as written: nothing is fused or reordered. It compiles faster, too.
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"

import facts
import jax
import jax.numpy as jnp
import keras
import layer_cases as cases
import numpy as np

jax.config.update("jax_enable_x64", True)
keras.config.set_floatx("float64")


def run(layer: Any, args: Any, call: Any, values: Any, others: Any) -> Any:
    """Return (outputs, new values of the untrained variables, losses), without side effects."""
    variables = [*layer.trainable_variables, *layer.non_trainable_variables]
    # Not stateless_call: it leaves the penalty on the outputs out.
    with keras.StatelessScope(zip(variables, [*values, *others]), collect_losses=True) as scope:
        outputs = layer(*args, **call)
        losses = layer.losses
    news = [scope.get_current_value(v) for v in layer.non_trainable_variables]
    news = [v if n is None else n for n, v in zip(news, others)]
    return outputs, news, losses


def fact_of(case: Any) -> dict[str, Any]:
    """Return what Keras gives for a case."""
    floats = "high" not in case[3]
    inputs = [jnp.asarray(x, "float64" if floats else "int32") for x in cases.inputs_of(case)]
    layer, call = cases.arguments(case, keras.layers)
    args = cases.arranged(case, inputs)
    layer(*args, **{k: v for k, v in call.items() if k != "training"})
    layer.set_weights([cases.weight_of(v.name, v.shape, i) for i, v in enumerate(layer.weights)])
    values = [v.value for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]

    def loss(values: Any, inputs: Any) -> Any:
        given = cases.arranged(case, inputs)
        outputs, news, losses = run(layer, given, call, values, others)
        many = cases.leaves(outputs)
        total = sum(losses) if losses else jnp.zeros(())
        for i, t in enumerate(many):
            total = total + jnp.sum(t * cases.wave(t.shape, 2.0 + i))
        return total, (many, news)

    step = jax.jit(jax.value_and_grad(loss, (0, 1) if floats else (0,), has_aux=True))
    (total, (many, news)), slopes = step(values, inputs)
    found = {
        "weights": [[v.name, list(v.shape)] for v in layer.weights],
        "outputs": [np.asarray(t) for t in many],
        "loss": np.asarray(total),
        "slopes": [np.asarray(g) for part in slopes for g in part],
    }
    weights = {id(v) for v in layer.weights}
    pairs = zip(layer.non_trainable_variables, news)
    kept = [np.asarray(n) for v, n in pairs if id(v) in weights]
    if kept:
        found["after"] = kept
    if "masks" in case[3] or case[3].get("out_mask"):
        mask = layer.compute_mask(args[0], cases.masks_of(case[3].get("masks")))
        found["mask"] = None if mask is None else np.asarray(mask).astype(int).tolist()
    return found


def main(words: list[str]) -> None:
    """Record the cases without facts; with words, those whose names hold one of them as well."""
    found = facts.read("layers")
    found["cases"] = {n: f for n, f in found["cases"].items() if n in cases.CASES}
    added = 0
    for name, case in cases.CASES.items():
        if name in found["cases"] and not any(word in name for word in words):
            continue
        added += 1
        try:
            found["cases"][name] = fact_of(case)
        except (ValueError, TypeError, RuntimeError, AttributeError) as error:
            print(f"{name}: no answer on JAX: {str(error)[:200]}")
    size = facts.write("layers", found)
    print(f"{added} cases on JAX, {len(found['cases'])} in all, {size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
