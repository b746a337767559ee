"""Short tracebacks: what leaves to the user's code shows the user's lines and where ours begin.

Public entry points pass what they raise to `hide_frames`, which takes the frames of kerasish out
of the traceback: those behind the entry, up to each frame of the user's (a layer's `call`, a
callback, a generator), which stay. The exception stays the object that it is.

No entry point has an additional frame for this: a method does its work inside `with
short_tracebacks:`, or, where it runs often, catches the error itself, which costs nothing until
there is one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import FrameType, TracebackType
from typing import Any, TypeVar

from kerasish.environment import switch

_PACKAGE = __name__.partition(".")[0]
_OPERATORS = f"{_PACKAGE}.operators"
_WRAPPERS = frozenset(
    (__name__, f"{_PACKAGE}.signatures", f"{_PACKAGE}.engine.layer.defaults")
)  # whose functions call a constructor that says what is wrong
# Libraries that kerasish calls: their frames say nothing to users where kerasish called them.
_LIBRARIES = frozenset(
    ("concurrent", "contextlib", "cupy", "functools", "h5py", "inspect", "json", "llvmlite",
     "ml_dtypes", "numpy", "queue", "threading", "zipfile")
)  # fmt: skip
# A traceback with more entries than this is that of a recursion: it stays as it is.
_MOST = 10_000

Function = TypeVar("Function", bound=Callable[..., Any])


class _Settings:
    filtering = not switch("KERASISH_FULL_TRACEBACKS")


def is_traceback_filtering_enabled() -> bool:
    """Return whether tracebacks leave out the frames of kerasish (True at the start).

    Example:
        >>> enable_traceback_filtering()
        >>> is_traceback_filtering_enabled()
        True
    """
    return _Settings.filtering


def enable_traceback_filtering() -> None:
    """Leave the frames of kerasish out of tracebacks: the user's lines stay, and the entry.

    Example:
        >>> enable_traceback_filtering()
        >>> is_traceback_filtering_enabled()
        True
    """
    _Settings.filtering = True


def disable_traceback_filtering() -> None:
    """Show all frames of kerasish in tracebacks, also to debuggers.

    The environment variable KERASISH_FULL_TRACEBACKS=1 does the same for a whole process.

    Example:
        >>> disable_traceback_filtering()
        >>> is_traceback_filtering_enabled()
        False
        >>> enable_traceback_filtering()
    """
    _Settings.filtering = False


def hide_frames(error: BaseException, keep_entry: bool = True) -> None:
    """Take the frames of kerasish out of an error's traceback, all but that of the entry point.

    To be called where an entry point has caught the error, before a plain `raise`. It does nothing
    where kerasish itself called the entry point: the entry point that the user called hides all.

    Args:
        error: what was caught. Errors that it was raised from, or during, are shortened, too;
            those that happened inside kerasish and only repeat the message are left out.
        keep_entry: False where the entry point is a wrapper, whose line says nothing: the frame
            of kerasish after it stays instead.
    """
    head = error.__traceback__
    if not _Settings.filtering or head is None:
        return
    caller = head.tb_frame.f_back
    operator = caller is not None and caller.f_globals.get("__name__") == _OPERATORS
    if caller is not None and operator:
        caller = caller.f_back  # `x + y` is a separate entry, and its frame is enough
    if caller is not None and _top_module(caller) == _PACKAGE:
        return
    entries = _entries(head)
    if not entries:
        return
    first = 0 if keep_entry else _first_after_wrappers(entries)
    kept = [*entries[first : first + 1], *_kept(entries[first + 1 :], after_ours=True)]
    kept = kept[1:] if operator else kept
    _link([head, *(t for t in kept if t is not head)])
    # Python 3.10 shows the head all the same: it raises the traceback that it caught.
    error.__traceback__ = kept[0] if kept else None
    _shorten_chain(error)


def _first_after_wrappers(entries: list[TracebackType]) -> int:
    """Return the place of the first entry that is not of a wrapper; of the last one if all are."""
    modules = [entry.tb_frame.f_globals.get("__name__") for entry in entries]
    own = [i for i, module in enumerate(modules) if i and module not in _WRAPPERS]
    return own[0] if own else len(entries) - 1


def _top_module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _entries(head: TracebackType | None) -> list[TracebackType]:
    """Return the entries of a traceback; none where there are too many."""
    entries: list[TracebackType] = []
    while head is not None:
        if len(entries) == _MOST:
            return []
        entries.append(head)
        head = head.tb_next
    return entries


def _kept(entries: Iterable[TracebackType], after_ours: bool) -> list[TracebackType]:
    """Return the entries without those of kerasish and of libraries that kerasish called."""
    results = []
    for entry in entries:
        module = _top_module(entry.tb_frame)
        if module == _PACKAGE:
            after_ours = True
        elif not (after_ours and module in _LIBRARIES):
            after_ours = False
            results.append(entry)
    return results


def _link(entries: list[TracebackType]) -> None:
    for entry, following in zip(entries, [*entries[1:], None]):
        if entry.tb_next is not following:
            entry.tb_next = following


def _shorten_chain(error: BaseException) -> None:
    """Shorten the errors that an error was raised from, or while they were handled."""
    seen = {id(error)}
    while True:
        explicit = error.__cause__ is not None
        linked = error.__cause__ if explicit else error.__context__
        if linked is None or id(linked) in seen or error.__suppress_context__ and not explicit:
            return
        seen.add(id(linked))
        entries = _entries(linked.__traceback__)
        kept = _kept(entries, after_ours=False)
        if entries and not kept:  # raised and caught inside kerasish
            if not explicit or str(linked) in str(error):
                error.__cause__, error.__suppress_context__ = None, True
                return
            kept = entries[-1:]
        if entries:
            _link(kept)
            linked.__traceback__ = kept[0]
        error = linked


class _ShortTracebacks:
    """A context that hides frames of kerasish in what leaves it; it adds no frame itself."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if isinstance(error, Exception):
            hide_frames(error)


short_tracebacks = _ShortTracebacks()


# --- keywords ---------------------------------------------------------------------------------


def did_you_mean(given: Iterable[str], known: Iterable[str]) -> str:
    """Return " Did you mean 'epochs'?" for misspelled names; "" where none is near.

    Args:
        given: the names that are not known.
        known: the names that are.

    Example:
        >>> did_you_mean(["epoch"], ["epochs", "verbose"])
        " Did you mean 'epochs'?"
    """
    import difflib  # needed only for errors

    names = list(known)
    near = [difflib.get_close_matches(str(n), names, n=1) for n in given]
    hints = " or ".join(dict.fromkeys(repr(matches[0]) for matches in near if matches))
    return f" Did you mean {hints}?" if hints else ""


def keyword_hint(function: Callable[..., Any], given: Iterable[str]) -> str:
    """Return what `did_you_mean` says of those names in `given` that a function does not take.

    Args:
        function: its parameters are the known names.
        given: the names of keyword arguments.
    """
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [p.name for p in parameters if p.kind in kinds and p.name != "self"]
    return did_you_mean([n for n in given if n not in known], known)


def takes_no_more(method: Function) -> Function:
    """Leave `**unexpected` out of what `help` and `inspect.signature` show of a method.

    The method raises `unexpected_keywords` itself, so that no wrapper adds a frame.
    """
    shown = inspect.signature(method)
    parameters = [p for p in shown.parameters.values() if p.kind is not p.VAR_KEYWORD]
    for name in shown.parameters.keys() - {p.name for p in parameters}:
        method.__annotations__.pop(name, None)
    method.__signature__ = shown.replace(parameters=parameters)  # type: ignore[attr-defined]
    return method


def unexpected_keywords(
    method: Callable[..., Any], who: str, unexpected: Mapping[str, Any]
) -> TypeError:
    """Return the error for keyword arguments that a method does not take.

    Args:
        method: the method.
        who: its name in the message, "Model.fit" for example.
        unexpected: the arguments.
    """
    names = ", ".join(repr(n) for n in unexpected)
    hint = keyword_hint(method, unexpected)
    if not hint:
        known = [n for n in inspect.signature(method).parameters if n != "self"]
        hint = f" It takes {', '.join(known)}."
    return TypeError(f"{who}() got an unexpected keyword argument {names}.{hint}")


def hides_frames(function: Function) -> Function:
    """Return a function whose errors hide frames, and name the argument that was meant.

    Args:
        function: a constructor, or a function or method that is not called for each batch.

    Example:
        >>> @hides_frames
        ... def layer(units):
        ...     return units
        >>> layer(units=3)
        3
        >>> layer(unit=3)
        Traceback (most recent call last):
        TypeError: layer() got an unexpected keyword argument 'unit'. Did you mean 'units'?
    """
    if getattr(function, "hides_frames", False):
        return function

    @functools.wraps(function)
    def entry(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            hint_keywords(error, function, kwargs)
            hide_frames(error, keep_entry=False)
            raise

    entry.hides_frames = True  # type: ignore[attr-defined]
    return entry  # type: ignore[return-value]


def hint_keywords(error: Exception, init: Callable[..., Any], given: Iterable[str]) -> None:
    """Add the name that was meant to the error of a call whose arguments do not fit.

    Args:
        error: as caught in the frame that made the call.
        init: what was called.
        given: the names of the keyword arguments.
    """
    at = error.__traceback__
    if type(error) is TypeError and at is not None and at.tb_next is None:
        hint = keyword_hint(init, given)
        if hint and hint not in str(error):
            error.args = (f"{str(error).rstrip('.')}.{hint}",)


class ShortInitTracebacks:
    """A base class: constructors of its classes inside kerasish are made by `hides_frames`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        hide_in_constructor(cls)


def hide_in_constructor(cls: type) -> None:
    """Let the constructor that a class of kerasish defines hide frames; others stay as they are.

    Args:
        cls: the class.
    """
    init = vars(cls).get("__init__")
    if init is not None and cls.__module__.partition(".")[0] == _PACKAGE:
        type.__setattr__(cls, "__init__", hides_frames(init))
