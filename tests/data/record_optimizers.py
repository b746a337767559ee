"""Records what Keras's optimizers and schedules do, for tests/optimizers.

Run with an environment that holds Keras 3: KERAS_BACKEND=jax python tests/data/record_optimizers.py
"""

from __future__ import annotations

import json
import pathlib
import sys

import numpy as np

SHAPES = {"kernel": (3, 4), "bias": (4,), "window": (2, 2, 3), "scale": ()}
STEPS = 10

CASES = {
    "sgd": ("SGD", {"learning_rate": 0.1}),
    "sgd_momentum": ("SGD", {"learning_rate": 0.1, "momentum": 0.9}),
    "sgd_nesterov": ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    "sgd_decay": ("SGD", {"learning_rate": 0.1, "weight_decay": 0.05}),
    "sgd_clipnorm": ("SGD", {"learning_rate": 0.1, "clipnorm": 0.5}),
    "sgd_clipvalue": ("SGD", {"learning_rate": 0.1, "clipvalue": 0.3}),
    "sgd_global_clipnorm": ("SGD", {"learning_rate": 0.1, "global_clipnorm": 0.7}),
    "sgd_loss_scale": ("SGD", {"learning_rate": 0.1, "loss_scale_factor": 8.0}),
    "sgd_ema": ("SGD", {"learning_rate": 0.1, "use_ema": True, "ema_momentum": 0.8}),
    "sgd_ema_overwrite": (
        "SGD",
        {"learning_rate": 0.1, "use_ema": True, "ema_momentum": 0.8, "ema_overwrite_frequency": 3},
    ),
    "sgd_accumulate": ("SGD", {"learning_rate": 0.1, "gradient_accumulation_steps": 3}),
    "adam_accumulate_ema": (
        "Adam",
        {
            "learning_rate": 0.05,
            "gradient_accumulation_steps": 2,
            "use_ema": True,
            "ema_momentum": 0.7,
            "ema_overwrite_frequency": 2,
            "clipnorm": 1.0,
            "weight_decay": 0.01,
        },
    ),
    "rmsprop": ("RMSprop", {"learning_rate": 0.05}),
    "rmsprop_momentum": ("RMSprop", {"learning_rate": 0.05, "momentum": 0.8, "rho": 0.7}),
    "rmsprop_centered": (
        "RMSprop",
        {"learning_rate": 0.05, "momentum": 0.8, "centered": True, "epsilon": 0.01},
    ),
    "adagrad": ("Adagrad", {"learning_rate": 0.1}),
    "adadelta": ("Adadelta", {"learning_rate": 1.0}),
    "adam": ("Adam", {"learning_rate": 0.05}),
    "adam_amsgrad": ("Adam", {"learning_rate": 0.05, "amsgrad": True, "beta_2": 0.6}),
    "adamw": ("AdamW", {"learning_rate": 0.05, "weight_decay": 0.1}),
    "adamax": ("Adamax", {"learning_rate": 0.05}),
    "nadam": ("Nadam", {"learning_rate": 0.05}),
    "ftrl": ("Ftrl", {"learning_rate": 0.1}),
    "ftrl_all": (
        "Ftrl",
        {
            "learning_rate": 0.1,
            "learning_rate_power": -0.6,
            "l1_regularization_strength": 0.02,
            "l2_regularization_strength": 0.03,
            "l2_shrinkage_regularization_strength": 0.04,
            "beta": 0.05,
        },
    ),
    "lion": ("Lion", {"learning_rate": 0.05, "weight_decay": 0.1}),
    "lamb": ("Lamb", {"learning_rate": 0.05}),
    "adafactor": ("Adafactor", {"learning_rate": 0.5}),
    "adafactor_fixed": ("Adafactor", {"learning_rate": 0.05, "relative_step": False}),
    "muon": ("Muon", {"learning_rate": 0.05}),
    "muon_plain": (
        "Muon",
        {"learning_rate": 0.05, "nesterov": False, "rms_rate": None, "weight_decay": 0.2,
         "adam_lr_ratio": 0.5, "ns_steps": 3},
    ),
    "muon_excluded": ("Muon", {"learning_rate": 0.05, "exclude_layers": ["ker"]}),
    "schedule_free": ("ScheduleFreeAdamW", {"learning_rate": 0.05}),
    "schedule_free_warm": (
        "ScheduleFreeAdamW",
        {"learning_rate": 0.05, "warmup_steps": 4, "weight_decay": 0.1, "beta_1": 0.8},
    ),
}  # fmt: skip

# Every optimizer with averages and with gradients of two batches at a time.
_RATES = {
    "SGD": 0.1, "RMSprop": 0.05, "Adagrad": 0.1, "Adadelta": 1.0, "Adam": 0.05, "AdamW": 0.05,
    "Adamax": 0.05, "Nadam": 0.05, "Ftrl": 0.1, "Lion": 0.05, "Lamb": 0.05, "Adafactor": 0.5,
    "Muon": 0.05, "ScheduleFreeAdamW": 0.05,
}  # fmt: skip
for _name, _rate in _RATES.items():
    _averages = {"use_ema": True, "ema_momentum": 0.8, "ema_overwrite_frequency": 3}
    CASES[f"{_name}, averages"] = (_name, {"learning_rate": _rate, **_averages})
    _twos = {"gradient_accumulation_steps": 2, "global_clipnorm": 2.0}
    CASES[f"{_name}, two batches"] = (_name, {"learning_rate": _rate, **_twos})

SCHEDULES = {
    "exponential": ("ExponentialDecay", [0.1, 7, 0.5], {}),
    "exponential_staircase": ("ExponentialDecay", [0.1, 7, 0.5], {"staircase": True}),
    "inverse": ("InverseTimeDecay", [0.1, 7, 0.5], {}),
    "inverse_staircase": ("InverseTimeDecay", [0.1, 7, 0.5], {"staircase": True}),
    "polynomial": ("PolynomialDecay", [0.1, 12], {"power": 2.0, "end_learning_rate": 0.01}),
    "polynomial_cycle": ("PolynomialDecay", [0.1, 12], {"cycle": True}),
    "piecewise": ("PiecewiseConstantDecay", [[5, 11], [0.3, 0.2, 0.1]], {}),
    "cosine": ("CosineDecay", [0.1, 20], {"alpha": 0.1}),
    "cosine_warmup": ("CosineDecay", [0.01, 20], {"warmup_target": 0.2, "warmup_steps": 6}),
    "cosine_warmup_only": ("CosineDecay", [0.01, 20], {"warmup_steps": 6}),
    "restarts": ("CosineDecayRestarts", [0.1, 6], {}),
    "restarts_equal": (
        "CosineDecayRestarts",
        [0.1, 6],
        {"t_mul": 1.0, "m_mul": 0.8, "alpha": 0.05},
    ),
}
SCHEDULE_STEPS = (0, 1, 3, 5, 6, 7, 11, 12, 13, 17, 18, 20, 25, 26, 40, 100)


def start(shape, number):
    """Return the first value of a variable: a fixed function of its place."""
    count = int(np.prod(shape, dtype=int))
    return np.cos(np.arange(count) * 1.3 + number).reshape(shape).astype("float32")


def gradient(shape, number, step):
    """Return the gradient of a variable at a step: a fixed function of its place."""
    count = int(np.prod(shape, dtype=int))
    wave = np.sin(np.arange(count) * 2.1 + number * 0.7 + step * 0.9) * (1 + 0.3 * step)
    return wave.reshape(shape).astype("float32")


def record_case(optimizers, variable, name, options):
    """Return the values of the variables and of the optimizer's after the steps."""
    made = getattr(optimizers, name)(**options)
    weights = [variable(start(s, i), name=n) for i, (n, s) in enumerate(SHAPES.items())]
    made.build(weights)
    first = None
    for step in range(STEPS):
        made.apply([gradient(s, i, step) for i, s in enumerate(SHAPES.values())])
        first = first or [flat(w) for w in weights]
    trained = [flat(w) for w in weights]
    made.finalize_variable_values(weights)
    return {
        "first": first,
        "weights": trained,
        "final": [flat(w) for w in weights],
        "slots": [flat(v) for v in made.variables[2:]],
        "names": [v.path.split("/")[-1] for v in made.variables],
        "config": made.get_config(),
    }


def flat(x):
    """Return the numbers of a variable as a flat list of short decimals."""
    return [float(f"{v:.8g}") for v in np.asarray(x, "float64").ravel()]


def main():
    """Write optimizers.json beside this file."""
    import keras

    def weight(value, name):
        return keras.Variable(value, name=name)

    kept = {"optimizers": {}, "schedules": {}}
    for case, (name, options) in CASES.items():
        kept["optimizers"][case] = record_case(keras.optimizers, weight, name, options)
    for case, (name, arguments, options) in SCHEDULES.items():
        schedule = getattr(keras.optimizers.schedules, name)(*arguments, **options)
        values = [flat(schedule(step))[0] for step in SCHEDULE_STEPS]
        kept["schedules"][case] = {"values": values, "config": schedule.get_config()}
    path = pathlib.Path(__file__).with_name("optimizers.json")
    path.write_text(json.dumps({"keras": keras.__version__, **kept}, separators=(",", ":")))
    sys.stdout.write(f"{path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
