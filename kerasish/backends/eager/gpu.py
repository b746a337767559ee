"""The eager engine of a GPU: the same ops by CuPy, with inputs copied to the device."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish import devices, tree
from kerasish.backends.backend import CompiledStep
from kerasish.backends.eager.cuda import KERNELS
from kerasish.backends.eager.cuda.fused import Result
from kerasish.backends.eager.cuda.fused_functions import FUSED_FUNCTIONS
from kerasish.backends.eager.cuda.update import update_by_formula
from kerasish.backends.eager.engine import Eager
from kerasish.backends.eager.feeding import Feeder
from kerasish.devices import Device, place_of
from kerasish.errors import DeviceError, DeviceMemoryError
from kerasish.ops.dtypes import array_dtype
from kerasish.ops.op import Op, UpdateFormula
from kerasish.tensor import Tensor, Variable, VariableScope, prepare, wrap
from kerasish.typing import Array, Structure

MOST_CONSTANTS = 2000


class _NoNeed:
    """CuPy does not warn about NaN and infinity: kernels run without a context."""

    run = None


class EagerOnGPU(Eager):
    """Runs ops on one GPU; inputs on other devices are copied there, constants once.

    Args:
        device: the GPU.
        overrides: op name -> kernel(*arrays, **attrs) that is faster than the reference; None:
            the package's CUDA kernels.

    Raises:
        DeviceError: the device cannot be used.
    """

    def __init__(
        self, device: Device, overrides: dict[str, Callable[..., Any]] | None = None
    ) -> None:
        overrides = KERNELS if overrides is None else overrides
        super().__init__(devices.array_module(device), overrides)
        self.device = device
        self._quiet = _NoNeed()  # type: ignore[assignment]
        self._constants: dict[Any, Any] = {}
        # By id: constants that are in use, even if they are no longer cached.
        self._kept: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Structure:
        """Compute `op` here; record it if a gradient may be requested."""
        tensors, attrs = prepare(op, args, attrs)
        return self.run(op, tensors, attrs)

    def run(self, op: Op, tensors: Sequence[Tensor], attrs: dict[str, Any]) -> Structure:
        """Compute `op` on prepared inputs on this engine's device."""
        if not tensors:
            created = self._created(op, attrs)
            if created is not None:
                return wrap(created)
        here = [self._brought(t) for t in tensors]
        kernel = self._kernels.get(op) or self.kernel(op)
        with self.xp.cuda.Device(self.device.index):
            try:
                out = kernel(*[t.value for t in here], **attrs)
            except Exception as error:
                self._explain(op, here, attrs, error)
                raise
            return self._recorded(op, here, attrs, out)

    def _brought(self, tensor: Tensor) -> Tensor:
        """Return the tensor if it is on this device, else a copy here with the same origin."""
        value = tensor.value
        if type(value.dtype) is str or place_of(value) == self.device:
            return tensor
        small = value.nbytes <= devices.SMALL
        return _with_value(tensor, self._constant(value) if small else self._placed(value))

    def for_variable(self, tensor: Tensor) -> Tensor:
        """Return the tensor if it is here in unshared memory, else a copy that is.

        A cached constant may be used by every op that needs those numbers, but never by two
        variables: writing one in place, as a captured step does, would change the other.
        """
        value = tensor.value
        if type(value.dtype) is str or place_of(value) != self.device:
            return tensor if type(value.dtype) is str else _with_value(tensor, self._placed(value))
        return _with_value(tensor, value.copy()) if self.is_kept(value) else tensor

    def is_kept(self, value: Array) -> bool:
        """Return whether an array is a cached constant, which several users may share."""
        return self._kept.get(id(value)) is value

    def _created(self, op: Op, attrs: dict[str, Any]) -> Any:
        """Return an op's result that depends only on attributes as a constant; None: not small."""
        if op.kind != "creation" or op.outputs != 1 or op.name in self._overrides:
            return None
        spec = op.shape(**attrs)
        if math.prod(spec.shape) * array_dtype(spec.dtype).itemsize > devices.MOST_CREATED:
            return None
        return self._constant(np.asarray(op.kernel(np, **attrs)))

    def _constant(self, value: Array) -> Any:
        """Return a small array on the device, and cache it: steps need such constants again."""
        if not isinstance(value, (np.ndarray, np.generic)):
            return self._placed(value)
        key = (value.tobytes(), value.dtype, value.shape)
        result = self._constants.get(key)
        if result is None:
            if len(self._constants) >= MOST_CONSTANTS:
                self._constants.clear()
            result = self._constants[key] = self._placed(value)
            self._kept[id(result)] = result
        return result

    fuses_calls = True

    def fused_call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Structure | None:
        """Return the result of a function composed of ops, or None if no kernel computes it."""
        fit = FUSED_FUNCTIONS.get(function)
        call = None if fit is None else fit(*args, **kwargs)
        if call is None:
            return None
        if isinstance(call, Result):
            return call.value
        op, inputs, attrs = call
        result = self.apply(op, inputs, attrs)
        return result[0] if op.shown == 1 else result[: op.shown] if op.shown else result

    def fused_update(
        self,
        formula: UpdateFormula,
        elements: Sequence[Sequence[Tensor]],
        numbers: Sequence[Tensor | None],
        decays: Sequence[float],
    ) -> list[list[Tensor]] | None:
        """Return [new values, new slots, ...] of an optimizer's variables, by one kernel."""
        said = devices.explaining_memory_errors(
            lambda: f"the update of {len(decays)} variables", self.device
        )
        with said, self.xp.cuda.Device(self.device.index):
            here = [[self._brought(t).value for t in some] for some in elements]
            result = update_by_formula(
                formula, here, numbers, decays, lambda t: self._brought(t).value
            )
        return None if result is None else [[wrap(a) for a in some] for some in result]

    def _explain(
        self, op: Op, tensors: Sequence[Tensor], attrs: dict[str, Any], error: Exception
    ) -> None:
        what = f"{op.name}({', '.join(f'{t.dtype}{list(t.shape)}' for t in tensors)})"
        if devices.is_fault(error):
            raise DeviceError(devices.fault(what, self.device, error)) from error
        if type(error).__name__ == "OutOfMemoryError":
            raise DeviceMemoryError(devices.out_of_memory(what, self.device, error)) from error
        super()._explain(op, tensors, attrs, error)

    def _placed(self, value: Array) -> Any:
        """Return the numbers as an array on this device."""
        return devices.place(value, self.device)

    def compile(self, function: Callable[..., Any], **options: Any) -> CompiledStep:
        """Return `function` as a step whose data and variables are copied to this device."""
        return StepOnGPU(self, super().compile(function, **options))

    def _scope(self) -> VariableScope:
        return _MovingScope(self)

    def synchronize(self) -> None:
        """Wait until all work submitted so far is done."""
        with self.xp.cuda.Device(self.device.index):
            self.xp.cuda.get_current_stream().synchronize()

    def memory_report(self) -> dict[str, int]:
        """Return the bytes used, kept for new tensors, free and in all."""
        return devices.memory(self.device)


class StepOnGPU(CompiledStep):
    """A step whose batches are copied to a GPU through separate buffers."""

    def __init__(self, engine: EagerOnGPU, step: CompiledStep) -> None:
        self._engine, self._step = engine, step
        self._feeder = Feeder(engine.xp, engine.device)

    def __call__(self, *args: Any, **kwargs: Any) -> Structure:
        device = self._engine.device
        with devices.device(device):
            with devices.explaining_memory_errors(lambda: "a batch", device):
                args, kwargs = tree.map_structure(self._feeder.feed, (args, kwargs))
            return self._step(*args, **kwargs)


class _MovingScope(VariableScope):
    """A scope whose variables move to the engine's device when they are first read."""

    def __init__(self, engine: EagerOnGPU) -> None:
        super().__init__()
        self.engine = engine

    def read(self, variable: Variable) -> Tensor:
        if variable not in self.written:
            leaf = variable.latest
            own = self.engine.for_variable(leaf)
            if own is not leaf:
                variable.latest = own
        return super().read(variable)

    def write(self, variable: Variable, value: Tensor) -> None:
        if self.engine.is_kept(value.value):
            value = _with_value(value, value.value.copy())
        super().write(variable, value)


def _with_value(tensor: Tensor, value: Array) -> Tensor:
    """Return a tensor of the same origin whose numbers are `value`."""
    result = wrap(value)
    result.maker, result.index = tensor.maker, tensor.index
    result.key, result.tracked = tensor.key, tensor.tracked
    return result


_engines: dict[tuple[Device, Any], EagerOnGPU] = {}
_guard = threading.Lock()


def engine_of(device: Device) -> EagerOnGPU:
    """Return the engine of a GPU; it is created on first use."""
    xp = devices.array_module(device)
    key = (device, xp)
    result = _engines.get(key)
    if result is None:
        with _guard:
            result = _engines.setdefault(key, EagerOnGPU(device))
    return result
