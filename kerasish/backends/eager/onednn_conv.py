"""Convolution by oneDNN; by the NumPy kernels for dtypes and sizes that oneDNN does not have.

Each thread keeps a `_Runner` per computation and sizes: the primitive and its bindings. To run one
is to set addresses and to call the library, about 20 us of Python. Weights are reordered in each
call, into memory that all runners of a thread share with the scratchpads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish.backends import onednn
from kerasish.backends.eager import numpy_conv
from kerasish.backends.onednn import native
from kerasish.typing import Array

Shape = tuple[int, ...]

_ALIGNMENT = 64
_KEPT = 512  # runners per thread; a model has three for each of its convolutions and batch sizes


def _buffer(x: Array) -> onednn.Buffer:
    return onednn.Buffer(int(x.__array_interface__["data"][0]), x.nbytes)


class _Memory(threading.local):
    """What each thread has of its own: runners by computation, and memory that they share."""

    def __init__(self) -> None:
        self.runners: OrderedDict[tuple[Any, ...], _Runner | None] = OrderedDict()
        self.shared = np.empty(0, np.uint8)

    def address(self, nbytes: int) -> int:
        """Return the address, a multiple of 64, of `nbytes` bytes for the current run."""
        if self.shared.nbytes < nbytes + _ALIGNMENT:
            self.shared = np.empty(nbytes + _ALIGNMENT, np.uint8)
        return -(-_buffer(self.shared).address // _ALIGNMENT) * _ALIGNMENT


_memory = _Memory()


class _Step:
    """A primitive, and the name of the memory for each of its arguments."""

    def __init__(self, primitive: onednn.Primitive, **names: str) -> None:
        self.primitive = primitive
        self.names = {name: names.get(name, name) for name in primitive.arguments}
        self.binding: onednn.Binding | None = None

    def run(self, memory: dict[str, onednn.Buffer]) -> None:
        if self.binding is None:
            self.binding = self.primitive.bind({n: memory[m] for n, m in self.names.items()})
        else:
            for name, where in self.names.items():
                self.binding.rebind(name, memory[where])
        self.binding.execute()


class _Runner:
    """A convolution of given sizes, or one of its gradients, on other arrays in each call.

    Args:
        geometry: the sizes.
        primitive: what is computed; its weights may be in another order than Keras's.
        weights: their name among the primitive's arguments.
    """

    def __init__(
        self, geometry: onednn.Geometry, primitive: onednn.Primitive, weights: str
    ) -> None:
        self.geometry = geometry
        plain, chosen = onednn.plain_weights(geometry), primitive.arguments[weights]
        self.steps = [_Step(primitive)]
        self.sizes: dict[str, int] = {}
        if chosen != plain:
            main = _Step(primitive, **{weights: "chosen"})
            self.sizes["chosen"] = chosen.nbytes
            if weights == "dweights":
                after = _Step(onednn.reorder(chosen, plain), source="chosen", destination=weights)
                self.steps = [main, after]
            else:
                before = _Step(onednn.reorder(plain, chosen), source=weights, destination="chosen")
                self.steps = [before, main]
        scratch = [step.primitive.scratchpad_bytes for step in self.steps]
        self.sizes["scratchpad"] = max(scratch)  # used by one step after the other

    def run(self, **arrays: Array) -> None:
        """Compute; `arrays` has an array of C order for each argument, results included."""
        memory = {name: _buffer(x) for name, x in arrays.items()}
        address = _memory.address(sum(self.sizes.values()) + _ALIGNMENT * len(self.sizes))
        for name, nbytes in self.sizes.items():
            memory[name] = onednn.Buffer(address, nbytes)
            address += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        for step in self.steps:
            step.run(memory)


_MAKERS: dict[str, tuple[Callable[..., onednn.Primitive], str]] = {
    "convolution": (onednn.convolution, "weights"),
    "convolution_data_gradient": (onednn.convolution_data_gradient, "weights"),
    "convolution_kernel_gradient": (onednn.convolution_weights_gradient, "dweights"),
}


def _make(what: str, *sizes: Any) -> _Runner | None:
    """Return a new runner, or None where oneDNN has no fast kernel for these sizes."""
    if native.available():
        return None
    make, weights = _MAKERS[what]
    try:
        geometry = onednn.Geometry(*sizes)
        primitive = make(geometry)
        return None if primitive.is_reference else _Runner(geometry, primitive, weights)
    except (onednn.OneDnnError, ValueError):
        return None


def _find(
    what: str, a: Array, b: Array, x_shape: Shape, kernel: Shape, settings: dict[str, Any]
) -> _Runner | None:
    """Return the runner for two arrays, or None if NumPy's kernel is to compute this."""
    if not (a.dtype.char == b.dtype.char == "f" and a.size and b.size):
        return None
    if kernel[-1] < 1 or (max(kernel[:-2]) == 1 and settings["groups"] == 1):
        return None  # a plain product
    place = (settings["strides"], settings["dilation"], settings["padding"], settings["groups"])
    key = (what, x_shape, kernel, *place, native.get_threads())
    runners = _memory.runners
    if key not in runners:
        runners[key] = _make(what, x_shape, kernel[-1], kernel[:-2], *place)
        if len(runners) > _KEPT:
            runners.popitem(last=False)
    runners.move_to_end(key)
    return runners[key]


def convolution(x: Array, kernel: Array, **settings: Any) -> Array:
    """Return the convolution; see `kerasish.ops.conv`."""
    runner = _find("convolution", x, kernel, x.shape, kernel.shape, settings)
    if runner is None:
        return _NUMPY["convolution"](x, kernel, **settings)
    y = np.empty(runner.geometry.y_shape, np.float32)
    runner.run(x=_ordered(x), weights=_ordered(kernel), y=y)
    return y


def convolution_data_gradient(g: Array, kernel: Array, *, size: Shape, **settings: Any) -> Array:
    """Return the transpose of the convolution in its data; see `kerasish.ops.conv`."""
    shape = (len(g), *size, kernel.shape[-2] * settings["groups"])
    runner = _find("convolution_data_gradient", g, kernel, shape, kernel.shape, settings)
    if runner is None or runner.geometry.y_shape != g.shape:
        return _NUMPY["convolution_data_gradient"](g, kernel, size=size, **settings)
    x = np.empty(shape, np.float32)
    runner.run(dy=_ordered(g), weights=_ordered(kernel), dx=x)
    return x


def convolution_kernel_gradient(x: Array, g: Array, *, size: Shape, **settings: Any) -> Array:
    """Return the transpose of the convolution in its kernel; see `kerasish.ops.conv`."""
    shape = (*size, x.shape[-1] // settings["groups"], g.shape[-1])
    runner = _find("convolution_kernel_gradient", x, g, x.shape, shape, settings)
    if runner is None or runner.geometry.y_shape != g.shape:
        return _NUMPY["convolution_kernel_gradient"](x, g, size=size, **settings)
    kernel = np.empty(shape, np.float32)
    runner.run(x=_ordered(x), dy=_ordered(g), dweights=kernel)
    return kernel


_NUMPY = numpy_conv.KERNELS
_ordered = np.ascontiguousarray

KERNELS: dict[str, Any] = {
    f.__name__: f for f in (convolution, convolution_data_gradient, convolution_kernel_gradient)
}
