"""`@kerasish.function`: any Python function of tensors as a compiled step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.backends import choose
from kerasish.devices import lies_on_gpu
from kerasish.tensor import Tensor, convert


def function(
    f: Callable[..., Any] | None = None, *, backend: str | None = None, optimize: str | None = None
) -> Callable[..., Any]:
    """Return `f` compiled by the backend in charge, once for each signature of its arguments.

    Variables that it reads are read anew at each call, assignments to variables are made when it
    is done. Arguments that are no arrays (numbers, strings, flags) are constants: another value
    is another signature.

    Args:
        f: a function of structures of tensors or arrays.
        backend: name of the backend; None: that of the settings.
        optimize: "fast_run", "fast_compile" or "none" for the static engine; None: the setting of
            `kerasish.config.set_optimize`.

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
    made: dict[int, Callable[..., Any]] = {}

    def whole(args: Any, kwargs: Any) -> Any:
        args, kwargs = tree.map_structure(_as_tensor, (args, kwargs))
        return f(*args, **kwargs)

    @functools.wraps(f)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        chosen = choose(backend)
        step = made.get(id(chosen))
        if step is None:
            name = getattr(f, "__name__", "function")
            step = made[id(chosen)] = chosen.compile(whole, name=name, optimize=optimize)
        return step(args, kwargs)

    return compiled


def _as_tensor(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x
    numbers = isinstance(x, np.ndarray) and x.dtype.kind not in "OUS"
    return convert(x) if numbers or lies_on_gpu(x) else x
