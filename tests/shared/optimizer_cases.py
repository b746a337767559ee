"""The cases in which optimizers and schedules meet Keras's numbers; no framework in here."""

from __future__ import annotations

from typing import Any

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
    _more = {
        "decay and clipped norms": {"weight_decay": 0.02, "clipnorm": 0.8},
        "clipped values": {"clipvalue": 0.4, "use_ema": True, "ema_momentum": 0.9},
        "clipped together": {"global_clipnorm": 1.1, "weight_decay": 0.03},
        "three batches, all else": {
            "gradient_accumulation_steps": 3, "clipnorm": 0.9, "weight_decay": 0.05,
            "use_ema": True, "ema_momentum": 0.6, "ema_overwrite_frequency": 2,
            "loss_scale_factor": 4.0,
        },
    }  # fmt: skip
    for _words, _options in _more.items():
        CASES[f"{_name}, {_words}"] = (_name, {"learning_rate": _rate, **_options})
    # A rate that changes with the steps; see `options_of`.
    CASES[f"{_name}, schedule"] = (_name, {"learning_rate": ["cosine_warmup_only"]})

_OPTIONS = {
    "Adam": ({"amsgrad": True, "weight_decay": 0.1}, {"beta_1": 0.5, "beta_2": 0.7},
             {"epsilon": 0.1}, {"amsgrad": True, "beta_2": 0.3, "gradient_accumulation_steps": 2}),
    "AdamW": ({"amsgrad": True, "beta_2": 0.4}, {"weight_decay": 0.0}, {"epsilon": 0.2}),
    "Adamax": ({"beta_1": 0.5, "beta_2": 0.6, "epsilon": 0.1},),
    "Nadam": ({"beta_1": 0.5, "beta_2": 0.6, "epsilon": 0.1},),
    "SGD": ({"momentum": 0.5, "nesterov": True, "weight_decay": 0.1, "clipnorm": 0.5},
            {"momentum": 0.7, "gradient_accumulation_steps": 2}, {"learning_rate": ["piecewise"]},
            {"momentum": 0.9, "nesterov": True, "learning_rate": ["exponential_staircase"]}),
    "RMSprop": ({"centered": True}, {"rho": 0.3, "epsilon": 0.1}, {"momentum": 0.5}),
    "Adagrad": ({"initial_accumulator_value": 0.7}, {"epsilon": 0.3}),
    "Adadelta": ({"rho": 0.5, "epsilon": 1e-3},),
    "Ftrl": ({"initial_accumulator_value": 0.5}, {"l1_regularization_strength": 0.3},
             {"l2_regularization_strength": 0.3}, {"learning_rate_power": 0.0}),
    "Lion": ({"beta_1": 0.5, "beta_2": 0.6},),
    "Lamb": ({"beta_1": 0.5, "beta_2": 0.6, "epsilon": 0.1},),
    "Adafactor": ({"beta_2_decay": -0.5, "clip_threshold": 0.5}, {"epsilon_1": 0.1},
                  {"epsilon_2": 0.5}, {"weight_decay": 0.1}),
    "Muon": ({"momentum": 0.5}, {"ns_steps": 2}, {"adam_beta_1": 0.5, "adam_beta_2": 0.6},
             {"muon_a": 2.0, "muon_b": -1.5, "muon_c": 0.5}, {"adam_weight_decay": 0.1}),
    "ScheduleFreeAdamW": ({"beta_2": 0.6, "epsilon": 0.1},
                          {"warmup_steps": 3, "gradient_accumulation_steps": 2}),
}  # fmt: skip
for _name, _sets in _OPTIONS.items():
    for _set in _sets:
        CASES[f"{_name} {_set}"] = (_name, {"learning_rate": _RATES[_name], **_set})

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


def options_of(case: str, schedules: Any) -> dict[str, Any]:
    """Return the arguments of a case, with a schedule in place of a schedule's name."""
    options = dict(CASES[case][1])
    rate = options["learning_rate"]
    if isinstance(rate, list):
        name, arguments, more = SCHEDULES[rate[0]]
        options["learning_rate"] = getattr(schedules, name)(*arguments, **more)
    return options


def by_jax(case: str) -> bool:
    """Say whether a case is recorded on JAX in place of PyTorch.

    Keras's ScheduleFreeAdamW keeps a variable's value before it changes the variable; PyTorch
    changes that value with it, so that the steps differ from those on Keras's other backends.
    """
    return CASES[case][0] == "ScheduleFreeAdamW"
