"""Routed parameters: `model__units`, `optimizer__learning_rate`, `callbacks__patience`..."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kerasish.errors import UnknownNameError
from kerasish.typing import AnyTensor, Structure

if TYPE_CHECKING:
    from kerasish.callbacks.callback import Callback
    from kerasish.losses.loss import Loss
    from kerasish.metrics.metric import Metric
    from kerasish.optimizers.optimizer import Optimizer

DESTINATIONS = (
    "model", "optimizer", "loss", "metrics", "callbacks", "compile", "fit", "predict"
)  # fmt: skip


def named_parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function or class that can be given by name."""
    parameters = inspect.signature(function).parameters
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {n: p for n, p in parameters.items() if p.kind in by_name and n != "self"}


def takes_any(function: Callable[..., Any]) -> bool:
    """Return whether a function has a `**kwargs`."""
    parameters = inspect.signature(function).parameters.values()
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


def goes_somewhere(name: str, builder: Any) -> bool:
    """Return whether a parameter has a known destination, or belongs to the model function."""
    destination, _, rest = name.partition("__")
    if rest and destination in DESTINATIONS:
        return True
    is_model = hasattr(builder, "fit") and not isinstance(builder, type)
    return callable(builder) and not is_model and takes(builder, name)


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function accepts an argument `name`."""
    return name in named_parameters(function) or takes_any(function)


def part(routed: dict[str, Any], destination: str) -> dict[str, Any]:
    """Return the parameters of a destination, without its prefix.

    Example:
        >>> part({"model__units": 3, "fit__batch_size": 8}, "model")
        {'units': 3}
    """
    prefix = f"{destination}__"
    return {k[len(prefix) :]: v for k, v in routed.items() if k.startswith(prefix)}


def check_names(given: Iterable[str], known: Iterable[str], destination: str, where: str) -> None:
    """Raise for the first name that the destination does not accept, and list the nearest."""
    names = [f"{destination}__{name}" for name in known]
    for name in given:
        if name.split("__")[0] not in known:
            raise UnknownNameError.of(
                f"routed parameter of {where}", f"{destination}__{name}", names
            )


def make(
    value: Any, given: dict[str, Any], destination: str, find: Callable[..., Any]
) -> Loss | Metric | Optimizer:
    """Return the object given by `value` (name, class, config or object) and its parameters.

    Args:
        value: a name known to `find`, a class, a config, or an object, which is copied.
        given: constructor arguments; `learning_rate__decay_rate` is passed to a class given as
            `learning_rate`.
        find: returns the object for a name or config.
    """
    if isinstance(value, type):
        kind, known = value, {}
    else:
        result = copy.deepcopy(value) if _is_object(value) else find(value)
        if not given:
            return result
        kind = type(result)
        known = result.get_config() if hasattr(result, "get_config") else {}
        if not hasattr(kind, "from_config"):
            raise ValueError(
                f"{destination}__{next(iter(given))}: {value!r} is a function without settings."
            )
    parameters = named_parameters(kind)
    if not takes_any(kind) or kind.__module__.startswith("kerasish"):
        check_names(given, list(parameters), destination, kind.__name__)
    direct = {k: v for k, v in given.items() if "__" not in k}
    for name in {k.split("__")[0] for k in given if "__" in k}:
        inner = direct.get(name, known.get(name))
        direct[name] = make(inner, part(given, name), f"{destination}__{name}", _as_is)
    if known and not isinstance(value, type):
        return kind.from_config({**known, **direct})  # type: ignore[attr-defined]
    return kind(**direct)


def _is_object(value: Metric | Optimizer | str) -> bool:
    return not isinstance(value, (str, dict)) and not inspect.isfunction(value)


def _as_is(value: Any) -> AnyTensor:
    return value


def make_each(
    values: Sequence[Any], given: dict[str, Any], destination: str, find: Callable[..., Any]
) -> Any:
    """Return the object given by each of `values`, in a list or dict of the same form.

    Args:
        values: a list or dict of names, classes, configs, objects, or of lists of these.
        given: `threshold` for all that accept it, `0__threshold` or `name__threshold` for one.
        find: returns the object for a name with arguments.

    Example:
        >>> from kerasish import metrics
        >>> given = {"1__curve": "PR"}
        >>> make_each(["accuracy", metrics.AUC], given, "metrics", metrics.get)[1].curve
        'PR'
    """
    listed = _by_name(values)
    own = _share_out(listed, given, destination, find)
    results = {n: _make_entry(v, own[n], f"{destination}__{n}", find) for n, v in listed.items()}
    return (
        dict(zip(values, results.values())) if isinstance(values, dict) else list(results.values())
    )


def _make_entry(
    value: Metric | type | str, given: dict[str, Any], destination: str, find: Callable[..., Any]
) -> Any:
    if isinstance(value, (list, tuple)):
        return make_each(value, given, destination, find)
    plain = isinstance(value, (str, dict)) or inspect.isfunction(value) or value is None
    return value if plain and not given else make(value, given, destination, find)


def make_callbacks(callbacks: Structure, given: dict[str, Any]) -> list[Any]:
    """Return the callbacks of one fit, new objects each time.

    Args:
        callbacks: one callback or class, a list or a dict of them.
        given: `patience` for all that accept it, `0__patience` or `name__patience` for one.

    Example:
        >>> from kerasish.callbacks import EarlyStopping
        >>> make_callbacks(EarlyStopping, {"patience": 3})[0].patience
        3
    """
    if callbacks is None:
        callbacks = []
    several = isinstance(callbacks, (list, tuple, dict))
    listed = _by_name(callbacks if several else [callbacks])
    own = _share_out(listed, given, "callbacks", _as_is)
    return [_make_callback(c, own[n]) for n, c in listed.items()]


def _by_name(values: dict[str, Any] | Sequence[Any]) -> dict[str, Any]:
    if isinstance(values, dict):
        return {str(k): v for k, v in values.items()}
    return {str(i): v for i, v in enumerate(values)}


def _share_out(
    listed: dict[str, Any], given: dict[str, Any], destination: str, find: Callable[..., Any]
) -> dict[str, dict[str, Any]]:
    """Return name -> its parameters; parameters for all do not override those for one."""
    own: dict[str, dict[str, Any]] = {name: {} for name in listed}
    for name, value in given.items():
        first, _, rest = name.partition("__")
        if rest and first in own:
            own[first][rest] = value
            continue
        takers = [n for n, v in listed.items() if first in _settings_of(v, find)]
        if not takers:
            known = {p for v in listed.values() for p in _settings_of(v, find)}
            raise UnknownNameError.of(
                f"routed parameter of the {destination}",
                f"{destination}__{name}",
                [f"{destination}__{n}" for n in (*known, *listed)],
            )
        for taker in takers:
            own[taker].setdefault(name, value)
    return own


def _settings_of(value: Callback | type, find: Callable[..., Any]) -> set[str]:
    """Return the parameters of a class, object or name, or of any in a list of these."""
    if isinstance(value, (list, tuple)):
        return {name for v in value for name in _settings_of(v, find)}
    if isinstance(value, (str, dict)):
        value = find(value)
    if inspect.isfunction(value) or value is None:
        return set()
    return set(named_parameters(value if isinstance(value, type) else type(value)))


def _make_callback(callback: object, given: dict[str, Any]) -> Any:
    if isinstance(callback, type):
        check_names(given, list(named_parameters(callback)), "callbacks", callback.__name__)
        return callback(**given)
    result = copy.deepcopy(callback)
    for name, value in given.items():
        if not hasattr(result, name):
            raise UnknownNameError.of(
                f"setting of the callback {type(result).__name__}", name, vars(result)
            )
        setattr(result, name, value)
    return result
