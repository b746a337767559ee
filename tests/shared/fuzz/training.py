"""How a program is trained: losses, metrics and optimizers of the registries, and their options."""

from __future__ import annotations

from typing import Any

import loss_cases
import metric_cases

from kerasish import losses, metrics, optimizers, registry

from .draft import Draft
from .programs import Goal

HEADS = {
    "binary": "ops.sigmoid({0})", "onehot": "ops.softmax({0})", "classes": "ops.softmax({0})",
    "positive": "ops.softplus({0})", "unit": "ops.normalize({0}, axis=-1)",
}  # fmt: skip
# Optimizers that need other optimizers, or none at all.
APART = {"Optimizer", "LossScaleOptimizer", "MultiOptimizer", "OptimizerMap"}
OPTIMIZERS = sorted(
    name for name, cls in registry.BUILTINS["keras.optimizers"].items()
    if isinstance(cls, type) and cls.__name__ == name and name not in APART
)  # fmt: skip
RATES = ("0.01", "0.1", "0.05",
         "optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)",
         "optimizers.schedules.CosineDecay(0.1, 3)",
         "optimizers.schedules.PiecewiseConstantDecay([1, 2], [0.1, 0.05, 0.01])")  # fmt: skip
OPTIONS = {
    "clipnorm": "0.5", "clipvalue": "0.2", "global_clipnorm": "0.7", "weight_decay": "0.01",
    "gradient_accumulation_steps": "2", "loss_scale_factor": "8.0",
}  # fmt: skip


def loss_case(draft: Draft) -> tuple[str, dict[str, Any], str]:
    """Return (class, arguments, kind of targets) of a random loss of the registry."""
    classes = {
        n for n, c in registry.BUILTINS["keras.losses"].items()
        if isinstance(c, type) and n not in ("Loss", "LossFunction", "CTC")
    }  # fmt: skip
    name = draft.pick(sorted(classes))
    known = [c for c in loss_cases.LOSSES if c[0] == name]
    if not known:
        return name, {}, "real"  # a new loss, whose cases are not written yet
    _, arguments, kinds = draft.pick(known)
    return name, arguments, draft.pick(kinds)


def add_goal(draft: Draft, value: str) -> Goal | None:
    """Make an output of a value: its activation, its loss, its metrics."""
    for _ in range(4):
        name, arguments, kind = loss_case(draft)
        if draft.chance(0.35):
            name, arguments, kind = "MeanSquaredError", {}, "real"
        if kind == "column":
            kind = "real"
        head = HEADS.get(kind.removesuffix(" 3d"), "")
        rank = len(draft.shape(value))
        if kind.endswith("3d") != (rank == 3) and ("axis" in arguments or kind != "real"):
            continue
        if head and (rank < 2 or (draft.shape(value)[-1] or 1) < 2):
            continue
        output = draft.add(head, (value,)) if head else value
        if not output:
            continue
        if draft.chance(0.25):
            arguments = {**arguments, "reduction": draft.pick(loss_cases.REDUCTIONS[:-1])}
        given = ", ".join(f"{k}={v!r}" for k, v in arguments.items())
        return Goal(output, f"losses.{name}({given})", kind, metric_codes(draft, kind, rank))
    return Goal(
        value,
        "losses.MeanSquaredError()",
        "real",
        metric_codes(draft, "real", len(draft.shape(value))),
    )


def metric_codes(draft: Draft, kind: str, rank: int) -> tuple[str, ...]:
    """Return up to two random metrics that take targets of a kind."""
    plain = kind.removesuffix(" 3d")
    wanted = {plain} if rank == 2 else {plain, f"{plain} 3d"}
    fit = [c for c in metric_cases.METRICS if wanted <= set(c[2]) and "fn" not in c[1]]
    if not fit or draft.chance(0.4):
        return ()
    result = [draft.pick(fit) for _ in range(int(draft.rng.integers(1, 3)))]
    names = {}
    for name, arguments, _ in result:
        arguments = {k: v for k, v in arguments.items() if "label" not in k}
        given = ", ".join(f"{k}={v!r}" for k, v in arguments.items())
        names[name] = f"metrics.{name}({given})"
    return tuple(names.values())


def optimizer_code(draft: Draft) -> str:
    """Return an expression that makes a random optimizer with random options."""
    if draft.chance(0.3):
        return f"optimizers.SGD({draft.pick(['0.1', '1.0', '0.01'])})"
    if draft.chance(0.05):
        return "optimizers.LossScaleOptimizer(optimizers.SGD(0.1), initial_scale=64.0)"
    name = draft.pick(OPTIMIZERS)
    given = [draft.pick(RATES)]
    if draft.chance(0.4):
        option = draft.pick(OPTIONS)
        given.append(f"{option}={OPTIONS[option]}")
    if draft.chance(0.2):
        given.append("use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2")
    if name == "SGD":
        given.append(draft.pick(["momentum=0.9", "momentum=0.5, nesterov=True"]))
    if name == "RMSprop" and draft.chance(0.5):
        given.append("centered=True, momentum=0.5")
    if name == "Adam" and draft.chance(0.5):
        given.append("amsgrad=True")
    return f"optimizers.{name}({', '.join(given)})"


assert losses.get("mse") and metrics.get("mae") and optimizers.get("sgd")
