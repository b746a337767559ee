"""Write layers.json: what Keras's own everyday layers give for tests/shared/layer_cases.py.

Run with Keras 3 and JAX installed: KERAS_BACKEND=jax python tests/data/record_layers.py
Outputs are stored in full, of each gradient its product with a wave.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "shared"))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import keras  # noqa: E402
import layer_cases as cases  # noqa: E402
import numpy as np  # noqa: E402


def rounded(x: Any) -> list[float]:
    """Return numbers with seven digits, flat."""
    return [float(f"{v:.7g}") for v in np.asarray(x, "float64").ravel()]


def run(layer: Any, case: Any, inputs: Any, call: Any, values: Any, others: Any) -> Any:
    """Return (outputs, new values of the untrained variables, losses), without side effects."""
    spread = case[3].get("spread")
    args = inputs if spread else [inputs if isinstance(case[2][0], list) else inputs[0]]
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
    inputs = [jnp.asarray(x) for x in cases.inputs_of(case)]
    layer, call = cases.arguments(case, keras.layers)
    args = inputs if case[3].get("spread") else [
        inputs if isinstance(case[2][0], list) else inputs[0]
    ]  # fmt: skip
    layer(*args, **{k: v for k, v in call.items() if k != "training"})
    layer.set_weights([cases.weight_of(v.name, v.shape, i) for i, v in enumerate(layer.weights)])
    values = [v.value for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]

    def loss(values: Any, inputs: Any) -> Any:
        outputs, news, losses = run(layer, case, inputs, call, values, others)
        many = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        total = sum(losses) if losses else 0.0
        for i, t in enumerate(many):
            total = total + jnp.sum(t * cases.wave(t.shape, 2.0 + i))
        return total, (many, news)

    floats = "high" not in case[3]
    names = (0, 1) if floats else (0,)
    (total, (many, news)), slopes = jax.value_and_grad(loss, names, has_aux=True)(values, inputs)
    flat = [g for part in slopes for g in part]
    fact = {
        "weights": [[v.name, list(v.shape)] for v in layer.weights],
        "outputs": [[list(t.shape), rounded(t)] for t in many],
        "loss": rounded(total)[0],
        "slopes": [rounded(np.sum(np.asarray(g) * cases.wave(g.shape, 0.5)))[0] for g in flat],
    }
    weights = {id(v) for v in layer.weights}
    kept = [rounded(n) for v, n in zip(layer.non_trainable_variables, news) if id(v) in weights]
    if kept:
        fact["after"] = kept
    if "masks" in case[3] or case[3].get("out_mask"):
        mask = layer.compute_mask(args[0], cases.masks_of(case[3].get("masks")))
        fact["mask"] = None if mask is None else np.asarray(mask).astype(int).tolist()
    return fact


def adapted() -> dict[str, Any]:
    """Return what Normalization learns from data."""
    found = {}
    for axis in (-1, None, [1, 2]):
        layer = keras.layers.Normalization(axis=axis)
        data = cases.wave([4, 3, 2], 1.0, 5.0)
        layer.adapt(data)
        found[json.dumps(axis)] = {
            "moments": [rounded(w) for w in layer.get_weights()], "output": rounded(layer(data)),
        }  # fmt: skip
    return found


def normalised() -> list[Any]:
    """Return what SpectralNormalization leaves behind and gives, for two training calls."""
    found = []
    for inner, shape in cases.SPECTRAL:
        name, args = inner
        layer = keras.layers.SpectralNormalization(getattr(keras.layers, name)(**args), 2)
        x = cases.wave(shape, 1.0)
        layer(x)
        layer.set_weights(
            [cases.weight_of(v.name, v.shape, i) for i, v in enumerate(layer.weights)]
        )
        for _ in range(2):
            y = layer(x, training=True)
            found.append([rounded(y), *(rounded(w) for w in layer.get_weights())])
    return found


if __name__ == "__main__":
    # With words: only the cases whose names hold one of them are recorded anew.
    words = sys.argv[1:]
    path = HERE / "layers.json"
    old = json.loads(path.read_text()) if words else {}
    facts: dict[str, Any] = {}
    for case in cases.CASES:
        name = cases.name_of(case)
        known = name in old and not any(word in name for word in words)
        facts[name] = old[name] if known else fact_of(case)
    facts["adapt"] = old.get("adapt") or adapted()
    facts["spectral"] = old.get("spectral") or normalised()
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in facts.items())
    path.write_text(f"{{\n{lines}\n}}\n")
