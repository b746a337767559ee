"""Constructor arguments that many classes share: declared once, shown by each of them.

A constructor names its own arguments and ends with `**options: Unpack[Options]`, where `Options`
is a `TypedDict`: type checkers and editors read it. `with_options` lets the constructor take the
options by position too, as Keras's do, and shows all of them to `inspect.signature` and `help`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kerasish.tracebacks import hide_frames, hint_keywords, keyword_hint

if TYPE_CHECKING:
    from typing_extensions import Self
    from typing_extensions import Unpack as Unpack
else:
    Unpack = Any  # annotations are texts, which nothing evaluates

Constructor = TypeVar("Constructor", bound=Callable[..., None])
Result = TypeVar("Result")
_PLAIN = inspect.Parameter.POSITIONAL_OR_KEYWORD


def any_arguments(method: Callable[..., Result]) -> Callable[..., Result]:
    """Let subclasses define the method with other arguments, as type checkers see it.

    Example:
        >>> @any_arguments
        ... def call(inputs, training=None, mask=None):
        ...     return inputs
        >>> call(3)
        3
    """
    return method


def with_options(
    options: type, defaults: Mapping[str, Any], rest: bool = True, **after: str
) -> Callable[[Constructor], Constructor]:
    """Return a decorator that lets a constructor with `**options` take and show each of them.

    The constructor gets all options, those that were not given with their defaults.

    Args:
        options: the `TypedDict` of the options.
        defaults: the default of each option, in the order of the arguments by position. Arguments
            that the constructor names itself are left out.
        rest: whether the constructor shows `**kwargs`, since it takes or checks further arguments.
        after: the argument after which a keyword-only argument of the constructor follows, by
            position: `seed="dropout"`. The others are last, in their order.

    Example:
        >>> from typing import TypedDict
        >>> class Options(TypedDict, total=False):
        ...     "The options of a family."
        ...     scale: float
        >>> class Plain:
        ...     @with_options(Options, {"scale": 1.0})
        ...     def __init__(self, rate, *, seed=0, **options):
        ...         print(rate, seed, options)
        >>> _ = Plain(0.2, 3.0)
        0.2 0 {'scale': 3.0}
        >>> list(inspect.signature(Plain).parameters)
        ['rate', 'scale', 'seed', 'kwargs']
    """
    types = {n: getattr(a, "__forward_arg__", a) for n, a in options.__annotations__.items()}

    def decorate(init: Constructor) -> Constructor:
        given = inspect.signature(init).parameters
        first = [p for p in given.values() if p.kind is _PLAIN]
        shown = {p.name: p for p in first}
        shared = {n: default for n, default in defaults.items() if n not in given}
        for n, default in shared.items():
            shown[n] = inspect.Parameter(n, _PLAIN, default=default, annotation=types[n])
        own = [p.replace(kind=_PLAIN) for p in given.values() if p.kind is p.KEYWORD_ONLY]
        for p in own:
            names = list(shown)
            place = names.index(after[p.name]) + 1 if p.name in after else len(names)
            items = list(shown.items())
            shown = dict([*items[:place], (p.name, p), *items[place:]])
        names = list(shown)

        @functools.wraps(init)
        def construct(*args: Any, **kwargs: Any) -> None:
            try:
                if len(args) > len(names):
                    raise TypeError(
                        f"{type(args[0]).__name__} takes {len(names) - 1} arguments by position "
                        f"at most, got {len(args) - 1}."
                    )
                for name, value in zip(names[len(first) :], args[len(first) :]):
                    if name in kwargs:
                        raise TypeError(f"{type(args[0]).__name__}: {name} is given twice.")
                    kwargs[name] = value
                init(*args[: len(first)], **{**shared, **kwargs})
            except Exception as error:
                hint_keywords(error, construct, kwargs)
                hide_frames(error, keep_entry=False)
                raise

        construct.hides_frames = True  # type: ignore[attr-defined]

        last = inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD, annotation="Any")
        parameters = [*shown.values(), *([last] if rest else [])]
        signature = inspect.Signature(parameters, return_annotation="None")
        return _with_signature(construct, signature)

    return decorate


def with_defaults(init: Constructor, defaults: Mapping[str, Any]) -> Constructor:
    """Return the constructor with other defaults for some arguments.

    Example:
        >>> def init(self, size, strides=1):
        ...     print(size, strides)
        >>> with_defaults(init, {"strides": (1, 1)})(None, 3)
        3 (1, 1)
    """
    signature = inspect.signature(init)
    parameters = [
        p.replace(default=defaults.get(p.name, p.default)) for p in signature.parameters.values()
    ]
    signature = signature.replace(parameters=parameters)
    places = {name: list(signature.parameters).index(name) for name in defaults}

    @functools.wraps(init)
    def construct(*args: Any, **kwargs: Any) -> None:
        missing = {n: d for n, d in defaults.items() if places[n] >= len(args)}
        try:
            init(*args, **{**missing, **kwargs})
        except Exception as error:
            _name_class(error, construct, args, kwargs)
            hide_frames(error, keep_entry=False)
            raise

    return _with_signature(construct, signature)


def _name_class(
    error: Exception, init: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Let the error of arguments that do not fit name the class, not that of the constructor."""
    if type(error) is TypeError:
        try:
            inspect.signature(init).bind(*args, **kwargs)
        except TypeError as misfit:
            hint = keyword_hint(init, kwargs)
            error.args = (f"{type(args[0]).__name__}.__init__() {misfit}{hint and '.'}{hint}",)


def own_arguments(thing: object, known: Collection[str] = ()) -> dict[str, Any]:
    """Return the constructor's arguments of an object, as its attributes of these names hold them.

    The constructor is the one of kerasish: an object of a user's class gives the arguments of the
    class of kerasish from which its class derives.

    Args:
        thing: an object whose constructor keeps its arguments.
        known: names of arguments to leave out.

    Example:
        >>> from kerasish import constraints
        >>> norm = constraints.MaxNorm(0.1, axis=1)
        >>> own_arguments(norm), own_arguments(norm, known=("axis",))
        ({'max_value': 0.1, 'axis': 1}, {'max_value': 0.1})
    """
    ours = __name__.partition(".")[0]
    for kind in type(thing).__mro__:
        if "__init__" in vars(kind) and kind.__module__.partition(".")[0] == ours:
            parameters = list(inspect.signature(vars(kind)["__init__"]).parameters.values())[1:]
            named = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
            return {name: getattr(thing, name) for name in named if name not in known}
    return {}


class Configured:
    """An object whose config is the arguments of its constructor, as its attributes hold them."""

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return own_arguments(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the object that `get_config` described."""
        return cls(**config)


class ConfiguredByArguments(Configured):
    """The same, of classes whose constructors have arguments: others write `get_config`."""

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        arguments = super().get_config()
        if not arguments:
            raise NotImplementedError(f"{type(self).__name__} must write get_config() to be saved.")
        return arguments


def _with_signature(init: Any, signature: inspect.Signature) -> Any:
    init.__signature__ = signature
    parameters = list(signature.parameters.values())[1:]
    init.__annotations__ = {p.name: p.annotation for p in parameters if p.name != "kwargs"}
    return init
