"""What CuPy itself would say to a call that its fake is asked for: names, arguments, dtypes.

The rules are read off CuPy where it is installed; importing it needs no GPU. The fake computes
with NumPy, which knows more arguments and more dtypes.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
from typing import Any

import numpy as np

_WORD = re.compile(r"(\*{0,2})(?:\w+ )*(\w+)(=.*)?")


@functools.cache
def _cupy() -> Any:
    """Return CuPy, or None; asked for before the fake takes its name."""
    return importlib.import_module("cupy") if importlib.util.find_spec("cupy") else None


CUPY = _cupy()


def real(path: tuple[str, ...]) -> Any:
    """Return CuPy's object of that name; None where CuPy is not installed.

    Raises:
        AttributeError: CuPy has no such name.
    """
    return None if CUPY is None else functools.reduce(getattr, path, CUPY)


def method(name: str) -> Any:
    """Return the method of CuPy's arrays; None where CuPy is not installed."""
    return None if CUPY is None else getattr(CUPY.ndarray, name)


def bound(function: Any) -> Any:
    """Return a method as if it were bound: its first argument is given."""
    return None if function is None else functools.partial(function, None)


@functools.cache
def _takes(function: Any) -> inspect.Signature | None:
    """Return a function's parameters, as it or its first line of help says them; None: unknown."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return _read(getattr(function, "__doc__", None) or "")


def _read(text: str) -> inspect.Signature | None:
    result = re.match(r"[\w.]+\((.*)\)", text.strip().split("\n")[0])
    if result is None:
        return None
    kinds = {"": inspect.Parameter.POSITIONAL_OR_KEYWORD, "*": inspect.Parameter.VAR_POSITIONAL}
    created, only = [], False
    for part in result[1].split(", "):
        word = _WORD.fullmatch(part)
        if word is None:
            return None
        stars, name, default = word.groups()
        kind = kinds.get(stars, inspect.Parameter.VAR_KEYWORD)
        kind = inspect.Parameter.KEYWORD_ONLY if only and not stars else kind
        only = only or stars == "*"
        value = inspect.Parameter.empty if default is None or stars else default
        created.append(inspect.Parameter(name, kind, default=value))
    try:
        return inspect.Signature(created)
    except ValueError:
        return None


def check_arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse arguments that CuPy's function does not take.

    Raises:
        TypeError: it does not.
    """
    if function is None or isinstance(function, (type, CUPY.ufunc)):
        return
    if isinstance(function, functools.partial):
        function, args = function.func, (None, *args)
    takes = _takes(function)
    if takes is not None:
        try:
            takes.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"CuPy's {function.__name__}{takes}: {error}") from None


def check_dtypes(function: Any, args: tuple[Any, ...], found: Any) -> None:
    """Refuse what an element-wise function of CuPy's does not know, or gives another dtype for.

    Raises:
        TypeError: it does.
    """
    if CUPY is None or not isinstance(function, CUPY.ufunc) or len(args) != function.nin:
        return
    arrays = [a.dtype for a in args if isinstance(a, (np.ndarray, np.generic))]
    if not arrays:
        return
    given = tuple(_dtype_beside(a, arrays) for a in args)
    name = f"{function.name}({', '.join(d.name for d in given)})"
    for loop in function._ops.ops:
        if all(np.can_cast(a, b) for a, b in zip(given, loop.in_types)):
            gives = [np.dtype(d) for d in loop.out_types]
            break
    else:
        raise TypeError(f"CuPy has no {name}.")
    results = found if isinstance(found, tuple) else (found,)
    here = [np.asarray(r).dtype for r in results]
    if here != gives:
        raise TypeError(f"CuPy's {name} gives {gives}, NumPy's {here}.")


def _dtype_beside(value: Any, arrays: list[Any]) -> Any:
    """Return a value's dtype; a Python number's gives way to the arrays'."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype
    return np.result_type(value, *arrays)
