"""The arguments that every optimizer takes, written once: see `kerasish.signatures`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from kerasish import signatures
from kerasish.optimizers.schedules.schedule import LearningRateSchedule
from kerasish.signatures import Unpack as Unpack
from kerasish.tensor import Tensor, Variable

# A number >= 0, a schedule, its config, or a function without arguments.
LearningRate = (
    float | Tensor | Variable | LearningRateSchedule | Callable[[], Any] | Mapping[str, Any]
)


class OptionsWithoutDecay(TypedDict, total=False):
    """`Options` of an optimizer with its own default of `weight_decay`."""

    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    use_ema: bool
    ema_momentum: float
    ema_overwrite_frequency: int | None
    loss_scale_factor: float | None
    gradient_accumulation_steps: int | None
    name: str | None


class Options(OptionsWithoutDecay, total=False):
    """What every optimizer takes in addition to its own arguments; `Optimizer` explains them."""

    weight_decay: float | None


# As in Keras: the order of the arguments by position.
DEFAULTS: dict[str, Any] = {
    "weight_decay": None,
    "clipnorm": None,
    "clipvalue": None,
    "global_clipnorm": None,
    "use_ema": False,
    "ema_momentum": 0.99,
    "ema_overwrite_frequency": None,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
    "name": None,
}
# For constructors that end with `**options: Unpack[Options]`.
with_options = signatures.with_options(Options, DEFAULTS)


def check_options(who: str, options: Options) -> None:
    """Raise where an option is out of its range.

    Args:
        who: the optimizer's class, for messages.

    Raises:
        ValueError: naming the option, what was expected and what was given.
    """
    clips = {k: options.get(k) for k in ("clipnorm", "clipvalue", "global_clipnorm")}
    given = {k: v for k, v in clips.items() if v is not None}
    if len(given) > 1:
        raise ValueError(f"{who}: give one of {list(clips)} at most, got {given}.")
    for name, value in given.items():
        if not value > 0:  # type: ignore[operator]
            raise ValueError(f"{who}: {name} must be positive, got {value!r}.")
    momentum, frequency = options["ema_momentum"], options["ema_overwrite_frequency"]
    if options["use_ema"] and not 0 <= momentum <= 1:
        raise ValueError(f"{who}: 0 <= ema_momentum <= 1 expected, got {momentum!r}.")
    integers = {"gradient_accumulation_steps": (options["gradient_accumulation_steps"], 2)}
    if options["use_ema"]:
        integers["ema_overwrite_frequency"] = (frequency, 1)
    for name, (steps, least) in integers.items():
        if steps is not None and (not isinstance(steps, int) or steps < least):
            raise ValueError(f"{who}: {name} must be an integer >= {least}, got {steps!r}.")
