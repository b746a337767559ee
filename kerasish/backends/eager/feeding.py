"""Copies of batches to a GPU: the next one is copied while the current one is used."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

from kerasish import devices
from kerasish.devices import Device, place_of
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Array, ArrayModule, Structure


def size_class(count: int) -> int:
    """Return the size of the buffers for arrays of `count` bytes, at least `count`.

    Eight classes for each power of two: at most an eighth of a buffer is unused, and batches
    whose sizes differ a little share their buffers.

    Args:
        count: bytes, >= 1.

    Example:
        >>> [size_class(n) for n in (1, 512, 513, 1025, 2_000_000)]
        [512, 512, 576, 1152, 2097152]
    """
    step = max(64, 1 << max((count - 1).bit_length() - 4, 0))
    return max(512, -(-count // step) * step)


def _wait(copied: list[Any], pinned: list[Any]) -> None:
    """Wait for the last copy from each buffer; `pinned` keeps the buffers until then."""
    for event in copied:
        if event is not None:
            event.synchronize()
    pinned.clear()


class _Lane:
    """The copies of arrays of one size class: two pinned buffers that alternate.

    Host memory is pinned so that the copy needs no staging by the driver. The device array for the
    NEXT batch is allocated one batch ahead: all earlier users of that memory have been submitted by
    then, so the copy need only wait for work submitted before this batch, and runs in parallel with
    the work of this batch.

    CuPy's pool reuses freed pinned memory immediately, even if it is still being read. So the
    buffers are freed only after their last copies: by `close`, or when the lane is collected.
    """

    def __init__(self, xp: ArrayModule, size: int) -> None:
        self.xp, self.size = xp, size
        self.pinned = [self._pin() for _ in range(2)]
        self.copied: list[Any] = [None, None]  # the event at the end of each buffer's last copy
        self.turn = 0
        self.close = weakref.finalize(self, _wait, self.copied, self.pinned)
        self._take()

    def _pin(self) -> Array:
        memory = self.xp.cuda.alloc_pinned_memory(self.size)
        return np.frombuffer(memory, np.uint8, self.size)

    def _take(self) -> None:
        """Allocate memory on the device for the next batch; record when it may be written."""
        self.taken_in = self.xp.cuda.get_current_stream()
        self.next = self.xp.empty(self.size, np.uint8)
        self.ready = self.taken_in.record()

    def send(self, array: Array, stream: Any) -> Any:
        """Return the array's numbers on the device; the copy continues in `stream`."""
        current = self.xp.cuda.get_current_stream()
        if current != self.taken_in:
            self._take()  # the pool reuses memory in the order of the stream that allocated it
        turn, self.turn = self.turn, 1 - self.turn
        if self.copied[turn] is not None:
            self.copied[turn].synchronize()  # two batches ago: usually complete
        pinned = self.pinned[turn][: array.nbytes]
        np.copyto(pinned.view(array.dtype).reshape(array.shape), array)
        filled, ready = self.next[: array.nbytes], self.ready
        self._take()
        stream.wait_event(ready)
        try:
            filled.set(pinned, stream=stream)
        finally:
            # Also after an error: the copy may be running, and its memory must not be freed before.
            self.copied[turn] = stream.record()
            current.wait_event(self.copied[turn])
        return filled.view(array.dtype).reshape(array.shape)


class Feeder:
    """Copies a step's arrays to a device, without waiting for the copies.

    Args:
        xp: CuPy.
        device: the GPU.
    """

    MOST_LANES = 16  # size classes whose buffers are kept

    def __init__(self, xp: ArrayModule, device: Device) -> None:
        self.xp, self.device = xp, device
        self._lanes: dict[int, _Lane] = {}
        self._stream: Any = None
        self._feeding = threading.Lock()  # a lane copies one batch at a time

    def feed(self, x: Array) -> Structure:
        """Return an array of numbers on the device; anything else unchanged."""
        if not isinstance(x, np.ndarray) or x.dtype.kind in "OUSV" and "float" not in x.dtype.name:
            return self._moved(x)
        if not x.shape or not x.size:
            return devices.place(x, self.device)
        with self._feeding, self.xp.cuda.Device(self.device.index):
            if self._stream is None:
                self._stream = self.xp.cuda.Stream(non_blocking=True)
            return self._lane(x).send(x, self._stream)

    def _moved(self, x: Array) -> Tensor:
        if isinstance(x, (Tensor, Variable)) or not devices.lies_on_gpu(x):
            return x
        own = devices.adopt(x)
        return own if place_of(own) == self.device else devices.place(own, self.device)

    def _lane(self, x: Array) -> _Lane:
        key = size_class(x.nbytes)
        lane = self._lanes.pop(key, None)
        if lane is None:
            if len(self._lanes) >= self.MOST_LANES:
                self._lanes.pop(next(iter(self._lanes))).close()
            lane = _Lane(self.xp, key)
        self._lanes[key] = lane  # the latest last
        return lane
