"""Ops that call a Python function of arrays: code of other libraries inside a graph.

Such an op is pure: the same arrays give the same results, and nothing else is changed. The engines
call it at its place in the order of the graph, with arrays on the host. It has no native code, so a
compiled step is native up to the call and again after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish.errors import ShapeError
from kerasish.ops.op import Op
from kerasish.ops.shapes import Spec
from kerasish.typing import AnyTensor, Array, ArrayModule

HostCall = Callable[..., Sequence[Any]]


class HostOp(Op):
    """An op that is a Python function of NumPy arrays, made while a program runs.

    Two calls of one HostOp with the same inputs may become one call; an op whose result nothing
    reads is not called. Make one op for one function and keep it: compiled steps are found by it.

    Args:
        name: what messages and summaries call it.
        call: `call(*arrays)` -> a sequence of arrays, one for each output. The arrays are not to
            be changed (they are read-only), nor kept after the call.
        infer: `infer(*specs)` -> a sequence of Specs, one for each output, of known sizes.
        outputs: the number of outputs, >= 1.
        gradient: `gradient(g, y, *inputs)` -> one tensor or None for each input, as for all ops.
            None: a gradient that is asked for raises.

    Example:
        >>> from kerasish import ops
        >>> double = HostOp("double", lambda x: [x * 2], lambda x: [x], 1)
        >>> double([ops.ones((2,))]).tolist()
        [2.0, 2.0]
    """

    def __init__(
        self,
        name: str,
        call: HostCall,
        infer: Callable[..., Sequence[Spec]],
        outputs: int,
        gradient: Callable[..., Sequence[Any]] | None = None,
    ) -> None:
        self.call, self.infer = call, infer
        super().__init__(
            self._kernel, "host", self._shape, gradient or self._no_gradient, None, 0, None, (),
            variadic=True, outputs=outputs, name=name, calls_python=True,
        )  # fmt: skip

    def _shape(self, *specs: Spec) -> Spec | tuple[Spec, ...]:
        results = tuple(Spec(tuple(s.shape), s.dtype) for s in self.infer(*specs))
        if len(results) != self.outputs:
            raise ShapeError(
                f"{self.name}: {self.outputs} outputs were expected, {len(results)} were inferred."
            )
        return results[0] if self.outputs == 1 else results

    def _kernel(self, xp: ArrayModule, *inputs: Array) -> Array | tuple[Array, ...]:
        arrays = [_read_only(x.get() if hasattr(x, "get") else x) for x in inputs]
        results = [np.asarray(r) for r in self.call(*arrays)]
        expected = self._shape(*(Spec(a.shape, a.dtype.name) for a in arrays))
        specs = [expected] if isinstance(expected, Spec) else list(expected)
        if len(results) != len(specs):
            raise ShapeError(f"{self.name} gave {len(results)} arrays, expected {len(specs)}.")
        for k, (result, spec) in enumerate(zip(results, specs)):
            if result.shape != spec.shape or result.dtype.name != spec.dtype:
                raise ShapeError(
                    f"{self.name}: output {k} has shape {result.shape} and dtype "
                    f"{result.dtype.name}; shape {spec.shape} and dtype {spec.dtype} were inferred."
                )
        placed = tuple(xp.asarray(r) for r in results)
        return placed[0] if self.outputs == 1 else placed

    def _no_gradient(self, g: Any, y: Any, *inputs: AnyTensor) -> Sequence[Any]:
        raise NotImplementedError(
            f"{self.name} has no derivative here: a function of Python code has at most the first "
            "one. Use kerasish.ops for what is differentiated again, or ops.stop_gradient()."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"{self.name} calls a Python function; such an op is not pickled.")


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view
