"""The arguments that every optimizer takes, written once.

A constructor names its own arguments and ends with `**options: Unpack[Options]`, which type
checkers and editors read. `with_options` lets it take them by position too, as Keras's do, and
shows all of them to `inspect.signature` and `help`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from kerasish.optimizers.schedules.schedule import LearningRateSchedule
from kerasish.tensor import Tensor, Variable

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack
else:
    Unpack = Any  # annotations are texts, which nothing evaluates

# A number >= 0, a schedule, its config, or a function without arguments.
LearningRate = (
    float | Tensor | Variable | LearningRateSchedule | Callable[[], Any] | Mapping[str, Any]
)
Constructor = TypeVar("Constructor", bound=Callable[..., None])


class OptionsWithoutDecay(TypedDict, total=False):
    """`Options` of an optimizer that gives `weight_decay` a default of its own."""

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
    """What every optimizer takes besides its own arguments; `Optimizer` says what they mean."""

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
_TYPES: dict[str, Any] = {**Options.__annotations__, **OptionsWithoutDecay.__annotations__}


def with_options(init: Constructor) -> Constructor:
    """Let a constructor that ends with `**options` take and show each of them.

    Args:
        init: `__init__`. Its keyword-only arguments come after the options, as in Keras.

    Example:
        >>> class Plain:
        ...     @with_options
        ...     def __init__(self, learning_rate=0.1, **options):
        ...         print(learning_rate, options)
        >>> _ = Plain(0.2, 0.01, clipnorm=1.0)
        0.2 {'clipnorm': 1.0, 'weight_decay': 0.01}
    """
    given = list(inspect.signature(init).parameters.values())
    plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
    first = [p for p in given if p.kind is plain]
    own = {p.name for p in given}
    options = [
        inspect.Parameter(n, plain, default=default, annotation=_TYPES[n].__forward_arg__)
        for n, default in DEFAULTS.items()
        if n not in own
    ]
    last = [p.replace(kind=plain) for p in given if p.kind is p.KEYWORD_ONLY]
    rest = inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD, annotation="Any")
    names = [p.name for p in (*first, *options, *last)]

    @functools.wraps(init)
    def construct(*args: Any, **kwargs: Any) -> None:
        if len(args) > len(names):
            raise TypeError(
                f"{type(args[0]).__name__} takes {len(names) - 1} arguments by position at most, "
                f"got {len(args) - 1}."
            )
        for name, value in zip(names[len(first) :], args[len(first) :]):
            if name in kwargs:
                raise TypeError(f"{type(args[0]).__name__}: {name} is given twice.")
            kwargs[name] = value
        init(*args[: len(first)], **kwargs)

    shown = inspect.Signature([*first, *options, *last, rest], return_annotation="None")
    construct.__signature__ = shown  # type: ignore[attr-defined]
    construct.__annotations__ = {p.name: p.annotation for p in (*first[1:], *options, *last)}
    return construct  # type: ignore[return-value]


def check_options(who: str, options: Options) -> None:
    """Raise where an option is out of its range.

    Args:
        who: the optimizer's class, for messages.

    Raises:
        ValueError: naming the option, what was expected and what came.
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
    wholes = {"gradient_accumulation_steps": (options["gradient_accumulation_steps"], 2)}
    if options["use_ema"]:
        wholes["ema_overwrite_frequency"] = (frequency, 1)
    for name, (steps, least) in wholes.items():
        if steps is not None and (not isinstance(steps, int) or steps < least):
            raise ValueError(f"{who}: {name} must be a whole number >= {least}, got {steps!r}.")
