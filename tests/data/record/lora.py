"""Write lora.npz and the files lora.keras, lora.weights.h5 and lora.h5, on JAX."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import facts
import jax
import jax.numpy as jnp
import keras
import lora_cases as cases
import numpy as np

DATA = Path(__file__).parents[1]


def fact_of(case: str) -> dict[str, Any]:
    """Return results, the trained weights' gradients, and what is trained."""
    layer = cases.layer_of(case, keras.layers)
    x = jnp.asarray(cases.inputs_of(case))
    trained = layer.trainable_variables
    others = [v.value for v in layer.non_trainable_variables]

    def loss(values: Any) -> Any:
        y, _ = layer.stateless_call(values, others, x)
        return jnp.sum(y * cases.wave(y.shape, 2.0)), y

    slopes, y = jax.grad(loss, has_aux=True)([v.value for v in trained])
    return {
        "weights": [[v.name, list(v.shape), v.trainable] for v in layer.weights],
        "trained": [v.name for v in trained],
        "outputs": np.asarray(y),
        "slopes": [np.asarray(g) for g in slopes],
        "losses": float(sum(layer.losses)) if layer.losses else 0.0,
        "merged": np.asarray(getattr(layer, "kernel", getattr(layer, "embeddings", None))),
    }


def main() -> None:
    warnings.simplefilter("ignore")
    found = {case: fact_of(case) for case in cases.CASES}
    model = cases.model_of(keras)
    for ending in ("keras", "h5"):
        model.save(DATA / f"lora.{ending}")
    model.save_weights(DATA / "lora.weights.h5")
    outputs = np.asarray(model(cases.model_inputs()))
    print(facts.write("lora", {"keras": keras.__version__, "cases": found, "outputs": outputs}))


if __name__ == "__main__":
    main()
