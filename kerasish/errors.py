"""The errors of kerasish, each a kind of the built-in error that users already catch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from traceback import walk_stack
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class ShapeError(ValueError):
    """Shapes do not fit; the message names the op or layer, and what was expected and given."""


class ScalarError(ShapeError, TypeError):
    """One number was asked of a tensor that holds none or several (Keras raises TypeError)."""


class DTypeError(TypeError, ValueError):
    """A dtype is unknown or does not fit the operation (Keras raises either kind)."""


class TraceError(TypeError, ValueError):
    """A traced function asked for a number that only exists when the graph runs."""


class NumberAskedError(TraceError):
    """Python asked a value of a trace for its number, which a trace does not have."""


class AdviceWarning(UserWarning):
    """A likely mistake in how a model is built or trained; training continues."""


class UnknownNameError(ValueError):
    """A name is not known; the message lists the nearest known ones."""

    @classmethod
    def of(cls, what: str, name: object, known: Iterable[str]) -> Self:
        """Return the error for the unknown `name` of a thing called `what`."""
        names = sorted(known)
        near = _close_matches(str(name), names, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Known: {names}."
        return cls(f"Unknown {what}: {name!r}. {hint}")


class UnknownKeyError(UnknownNameError, KeyError):
    """A key of a dict is not known; the message lists the nearest known ones."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


class MissingFileError(FileNotFoundError, ValueError):
    """A file to load is not there."""

    @classmethod
    def of(cls, who: str, path: str) -> Self:
        """Return the error for a path at which there is nothing.

        Args:
            who: the function that was to read it.
            path: the path.
        """
        folder, name = os.path.split(os.path.abspath(path))
        try:
            names = os.listdir(folder)
        except OSError:
            return cls(f"{who}: there is no file {path!r}, and no folder {folder!r} that is read.")
        near = _close_matches(name, names, n=1)
        fix = f"Did you mean {near[0]!r}?" if near else "Give a path from there, or from the root."
        return cls(f"{who}: there is no file {path!r} in {folder!r}. {fix}")


class DeviceError(RuntimeError):
    """A device cannot be used; the message says why, and what would help."""


class DeviceMemoryError(MemoryError):
    """A device has too little memory; the message says how much was asked for, used and free."""


class ResumeError(ValueError):
    """The saved state of a training cannot be taken up; nothing has been changed."""


class FolderInUseError(RuntimeError):
    """Another training, in this process or another one, keeps its states in the folder."""


# Whose frames are no lines of the user's: ours, and those that call back into ours.
_NOT_USERS = frozenset((__name__.partition(".")[0], "numpy", "contextlib", "functools"))


def add_note(error: BaseException, note: str) -> None:
    """Add a line to what is shown of an error, which stays the object that it is.

    Args:
        error: the error.
        note: the line.

    Example:
        >>> import traceback
        >>> error = ValueError("Expected 3 rows, got 2.")
        >>> add_note(error, "In layer 'dense'.")
        >>> "In layer 'dense'." in "".join(traceback.format_exception(error))
        True
    """
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif error.args and isinstance(error.args[0], str):  # Python 3.10
        error.args = (f"{error.args[0]}\n{note}", *error.args[1:])


def is_users(frame: FrameType) -> bool:
    """Return whether a frame runs the user's code, not that of kerasish or what calls back into it.

    Example:
        >>> is_users(sys._getframe())
        False
    """
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _NOT_USERS


_FRAMES = 24  # from an op of a layer to the line that calls the layer there are fewer
# Below their frames are the callers of a step, not its content.
_RUN_STEPS = frozenset(("kerasish.graph.trace", "kerasish.engine.training.step",
                        "kerasish.engine.training.program"))  # fmt: skip
_users: dict[str, bool] = {}  # module -> whether it is the user's


def user_place() -> tuple[str, int] | None:
    """Return (file, line) of the user's code nearest to the caller; None if it is far away.

    For frequent calls: it checks only a few frames.

    Example:
        >>> place = user_place()
        >>> place is None or place[1] > 0
        True
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None:
            return None
        name = frame.f_globals.get("__name__", "")
        users = _users.get(name)
        if users is None:
            users = _users[name] = is_users(frame)
        if users:
            return frame.f_code.co_filename, frame.f_lineno
        if name in _RUN_STEPS:
            return None
        frame = frame.f_back
    return None


def at_user_line() -> str:
    """Return " at file:line" of the innermost frame that is the user's, "" if there is none.

    Example:
        >>> " at " in at_user_line()
        True
    """
    for frame, line in walk_stack(sys._getframe(1)):
        if is_users(frame):
            return f" at {frame.f_code.co_filename}:{line}"
    return ""


def levels_to_user() -> int:
    """Return the stacklevel at which `warnings.warn` shows the user's line that led here."""
    level = 1
    for level, (frame, _) in enumerate(walk_stack(sys._getframe(1)), 1):  # noqa: B007
        if is_users(frame):
            break
    return level


def _close_matches(name: str, names: list[str], n: int, cutoff: float = 0.6) -> list[str]:
    import difflib  # needed only for errors

    return difflib.get_close_matches(name, names, n, cutoff)
