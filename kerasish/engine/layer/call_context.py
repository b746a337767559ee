"""What is in force while layers call each other: training flag, outermost layer, its losses."""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

serials = itertools.count(1)
NOWHERE = object()  # the root of calls that repeat earlier ones: their losses are known


class CallRecorder(Protocol):
    """What may take the calls of layers in a thread."""

    def layer_call(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what represents the results of `layer(*args, **kwargs)`."""


class CallContext(threading.local):
    """One a thread: the training flag in force, and the outermost call under way.

    Attributes:
        watch: called with each layer and its results; None: by no code.
        recorder: what takes the calls of layers in place of the layers; None: they run.
    """

    training: bool | None = None
    root: Any = None
    serial: int = 0
    watch: Callable[[Any, Any], None] | None = None
    recorder: CallRecorder | None = None


context = CallContext()


class CallParts(NamedTuple):
    """What a layer's `call` takes."""

    names: tuple[str, ...]
    training: bool
    training_default: Any
    masks: tuple[str, ...]
    single: bool  # one tensor argument: its mask is called `mask`


def parameters_of(method: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return what a function written in a class takes after its first parameter, "self" or not.

    Example:
        >>> [p.name for p in parameters_of(lambda this, x, mask=None: x)]
        ['x', 'mask']
    """
    result = list(inspect.signature(method).parameters.values())
    bound = isinstance(method, staticmethod)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return result[1:] if result and result[0].kind in positional and not bound else result


def read_call(function: Callable[..., Any]) -> CallParts:
    """Return what the signature of a layer's `call`, as written in the class, asks for."""
    parameters = parameters_of(function)
    names = tuple(
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    )
    keyword = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    training = next((p for p in parameters if p.name == "training"), None)
    default = training.default if training is not None else None
    if default is inspect.Parameter.empty:
        default = None
    every = (*names, *keyword)
    masks = tuple(n for n in every if n == "mask" or n.endswith("_mask") and n[:-5] in every)
    return CallParts(names, training is not None, default, masks, "mask" in masks)
