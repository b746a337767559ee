"""Batches on their way to a GPU: the next one travels while this one is computed with."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerasish import devices
from kerasish.devices import Device, place_of
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Array, ArrayModule, Structure


class _Lane:
    """The way of arrays of one shape and dtype: two pinned buffers, used in turn.

    Host memory is pinned so that the copy needs no staging by the driver. The array on the device
    that the NEXT batch will fill is taken one batch ahead: whatever used that memory before has
    been handed in by then, so the copy need only wait for work handed in before this batch, and
    runs in parallel with this batch's.
    """

    def __init__(self, xp: ArrayModule, array: Array) -> None:
        self.xp = xp
        self.shape, self.dtype = array.shape, array.dtype
        self.pinned = [self._pin(array) for _ in range(2)]
        self.copied: list[Any] = [None, None]  # when each buffer's last copy was over
        self.turn = 0
        self.next, self.ready = self._take()

    def _pin(self, array: Array) -> Array:
        memory = self.xp.cuda.alloc_pinned_memory(max(array.nbytes, 1))
        return np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)

    def _take(self) -> tuple[Any, Any]:
        """Return an array on the device, and when all work handed in until now is over."""
        return self.xp.empty(self.shape, self.dtype), self.xp.cuda.get_current_stream().record()

    def send(self, array: Array, stream: Any) -> Any:
        """Return the array's numbers on the device; the copy goes on in `stream`."""
        turn, self.turn = self.turn, 1 - self.turn
        if self.copied[turn] is not None:
            self.copied[turn].synchronize()  # two batches ago: over long since
        np.copyto(self.pinned[turn], array)
        filled, ready = self.next, self.ready
        self.next, self.ready = self._take()
        stream.wait_event(ready)
        filled.set(self.pinned[turn], stream=stream)
        self.copied[turn] = stream.record()
        self.xp.cuda.get_current_stream().wait_event(self.copied[turn])
        return filled


class Feeder:
    """Brings a step's arrays to a device, without waiting for the copies.

    Args:
        xp: CuPy.
        device: the GPU.
    """

    MOST_LANES = 16  # shapes and dtypes whose buffers are kept

    def __init__(self, xp: ArrayModule, device: Device) -> None:
        self.xp, self.device = xp, device
        self._lanes: dict[Any, _Lane] = {}
        self._stream: Any = None

    def feed(self, x: Array) -> Structure:
        """Return an array of numbers on the device; anything else as it is."""
        if not isinstance(x, np.ndarray) or x.dtype.kind in "OUSV" and "float" not in x.dtype.name:
            return self._moved(x)
        if not x.shape or not x.size:
            return devices.place(x, self.device)
        with self.xp.cuda.Device(self.device.index):
            if self._stream is None:
                self._stream = self.xp.cuda.Stream(non_blocking=True)
            return self._lane(x).send(x, self._stream)

    def _moved(self, x: Array) -> Tensor:
        if isinstance(x, (Tensor, Variable)) or not devices.lies_on_gpu(x):
            return x
        own = devices.adopt(x)
        return own if place_of(own) == self.device else devices.place(own, self.device)

    def _lane(self, x: Array) -> _Lane:
        key = (x.shape, x.dtype)
        lane = self._lanes.pop(key, None)
        if lane is None:
            if len(self._lanes) >= self.MOST_LANES:
                del self._lanes[next(iter(self._lanes))]
            lane = _Lane(self.xp, x)
        self._lanes[key] = lane  # the latest last
        return lane
