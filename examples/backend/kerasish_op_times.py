"""A backend that runs ops with NumPy and measures each of them.

It is written only from the documented contract: `kerasish/backends/backend.py`, the classes `Op`
and `Engine` of `kerasish/ops/op.py`, and the public names of `kerasish.tensor`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends import Backend, CompiledStep
from kerasish.devices import Device
from kerasish.ops.op import Op, has_chosen_engine, using_engine
from kerasish.ops.shapes import Spec
from kerasish.tensor import VariableScope, concrete, finish, prepare, using_scope


class OpTime(NamedTuple):
    """What was measured of one op.

    Attributes:
        calls: how often it ran.
        seconds: the time of all calls in the kernel, in seconds.
        nbytes: the size of all results, in bytes.
    """

    calls: int = 0
    seconds: float = 0.0
    nbytes: int = 0


class OpTimes(Backend):
    """Runs each op with its reference kernel on NumPy arrays, and measures it.

    Example:
        >>> from kerasish import ops
        >>> backend = OpTimes()
        >>> step = backend.compile(lambda x: ops.exp(x) + 1.0)
        >>> step([0.0, 0.0]).tolist()
        [2.0, 2.0]
        >>> backend.times()["exp"].calls
        1
    """

    name = "op_times"

    def __init__(self) -> None:
        self._times: dict[str, OpTime] = {}
        self._guard = threading.Lock()  # steps may run in several threads

    # --- the contract -----------------------------------------------------------------------

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Return what `op` gives: a tensor, or a tuple of `op.outputs` tensors."""
        tensors, attrs = prepare(op, args, attrs)
        arrays = [concrete(t) for t in tensors]
        start = time.perf_counter()
        try:
            with np.errstate(all="ignore"):  # NaN and infinity are results, not warnings
                out = op.kernel(np, *arrays, **attrs)
        except ValueError:
            # The shape rule knows what does not fit, and says it in the op's own words.
            op.shape(*(Spec(t.shape, t.dtype) for t in tensors), **attrs)
            raise
        seconds = time.perf_counter() - start
        outputs = (out,) if op.outputs == 1 else tuple(out)
        self._add(op.name, seconds, sum(np.asarray(o).nbytes for o in outputs))
        return finish(op, tensors, attrs, out)

    def compile(self, function: Callable[..., Any], **options: Any) -> CompiledStep:
        """Return a step that runs `function` op by op."""
        return _Step(self, function)

    def on(self, device: Device) -> Backend | None:
        """Return this backend for the CPU, and None for GPUs: the eager engine runs there."""
        return self if device.kind == "cpu" else None

    # --- what was measured ------------------------------------------------------------------

    def times(self) -> dict[str, OpTime]:
        """Return what was measured since the start, or since `reset`, by the op's name."""
        with self._guard:
            return dict(self._times)

    def reset(self) -> None:
        """Drop all measurements."""
        with self._guard:
            self._times.clear()

    def table(self, rows: int = 20) -> str:
        """Return the slowest ops as text, one line each.

        Args:
            rows: how many ops to list, 1 or more.
        """
        times = sorted(self.times().items(), key=lambda item: -item[1].seconds)
        lines = [f"{'op':18}{'calls':>8}{'milliseconds':>14}{'bytes':>12}"]
        for name, (calls, seconds, nbytes) in times[:rows]:
            lines.append(f"{name:18}{calls:8}{seconds * 1e3:14.3f}{nbytes:12}")
        return "\n".join(lines)

    def _add(self, name: str, seconds: float, nbytes: int) -> None:
        with self._guard:
            before = self._times.get(name, OpTime())
            self._times[name] = OpTime(
                before.calls + 1, before.seconds + seconds, before.nbytes + nbytes
            )


class _Step(CompiledStep):
    """A function that runs op by op; its assignments are made when it has returned."""

    def __init__(self, backend: OpTimes, function: Callable[..., Any]) -> None:
        self._backend, self._function = backend, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Called inside a trace, or inside another step: that engine stays the current one.
        if has_chosen_engine():
            return self._run(args, kwargs)
        with using_engine(self._backend):
            return self._run(args, kwargs)

    def _run(self, args: Any, kwargs: Any) -> Any:
        scope = VariableScope()
        with using_scope(scope):
            result = self._function(*args, **kwargs)
        scope.commit()  # not reached after an exception: every variable stays as it was
        return result
