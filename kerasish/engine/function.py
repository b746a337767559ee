"""`@kerasish.function`: any Python function of tensors as a compiled step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kerasish.backends import choose


def function(
    f: Callable[..., Any] | None = None, *, backend: str | None = None, optimize: str = "fast_run"
) -> Callable[..., Any]:
    """Return `f` compiled by the backend in charge, once for each signature of its arguments.

    Variables that it reads are read anew at each call, assignments to variables are made when it
    is done. Arguments that are no arrays (numbers, strings, flags) are constants: another value
    is another signature.

    Args:
        f: a function of structures of tensors or arrays.
        backend: name of the backend; None: that of the settings.
        optimize: "fast_run", "fast_compile" or "none".

    Raises:
        TraceError: Python asked a traced tensor for its number.

    Example:
        >>> @function
        ... def hypotenuse(a, b):
        ...     return (a * a + b * b) ** 0.5
        >>> import numpy as np
        >>> float(hypotenuse(np.float32([3.0]), np.float32([4.0]))[0])
        5.0
    """
    if f is None:
        return functools.partial(function, backend=backend, optimize=optimize)
    made: dict[str, Callable[..., Any]] = {}

    def whole(args: Any, kwargs: Any) -> Any:
        return f(*args, **kwargs)

    @functools.wraps(f)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        chosen = choose(backend)
        step = made.get(chosen.name)
        if step is None:
            name = getattr(f, "__name__", "function")
            step = made[chosen.name] = chosen.compile(whole, name=name, optimize=optimize)
        return step(args, kwargs)

    return compiled
