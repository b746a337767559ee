"""Devices: where arrays are stored, which device is current, and how arrays get there.

An op runs where its data is: on the GPU of the first input that is on one, else on the current
device. The current device is that of the innermost `device` block, else that of `set_device`, else
KERASISH_DEVICE's, else the CPU. A GPU that is not asked for is named in one warning and not used.
"""

from __future__ import annotations

import contextvars
import importlib
import importlib.util
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerasish.changes import note_change
from kerasish.errors import DeviceError, DeviceMemoryError
from kerasish.typing import Array, ArrayModule


@dataclass(frozen=True)
class Device:
    """The CPU, or a GPU by its number.

    Example:
        >>> str(Device("gpu", 1)), str(CPU)
        ('gpu:1', 'cpu')
    """

    kind: str
    index: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.index}"


CPU = Device("cpu")
SMALL = 64  # bytes: arrays up to this size are taken for constants
# Bytes: arrays up to this size that an op makes only of numbers are kept as constants on a GPU.
MOST_CREATED = 4096


class _State:
    chosen: Device | None = None  # by set_device
    automatic: Device | None = None  # found when first asked for
    accelerated = False  # whether anything may be on a GPU; until then no code checks


device_here: contextvars.ContextVar[Device | None] = contextvars.ContextVar("device", default=None)
_guard = threading.Lock()


def parse(name: str | Device) -> Device:
    """Return the device called `name`: "cpu", "gpu", "gpu:1" ("cuda:1" is the same), or a Device.

    Raises:
        ValueError: no such name.

    Example:
        >>> parse("gpu"), parse("cpu:0")
        (Device(kind='gpu', index=0), Device(kind='cpu', index=0))
    """
    if isinstance(name, Device):
        return name
    result = re.fullmatch(r"(cpu|gpu|cuda)(?::(\d+))?", name.lower()) if type(name) is str else None
    if result is None:
        raise ValueError(f"A device is 'cpu', 'gpu' or 'gpu:1', got {name!r}.")
    kind, number = result.groups()
    if kind == "cpu":
        return CPU
    return Device("gpu", int(number or 0))


def current() -> Device:
    """Return the device that new tensors are made on."""
    return device_here.get() or _State.chosen or _State.automatic or _find_automatic()


def set_device(name: str) -> None:
    """Make `name` the current device of the process: "cpu", "gpu:0"; None: KERASISH_DEVICE's
    again, or the CPU.

    Variables that are elsewhere move when a step next needs them.

    Args:
        name: "cpu", "gpu:0" and so on; None: the choice made at the start.

    Raises:
        ValueError: no device has such a name.
        DeviceError: the device cannot be used; the message says why.

    Example:
        >>> import kerasish
        >>> kerasish.config.set_device("cpu")
        >>> kerasish.config.set_device(None)  # the choice made at the start
    """
    _State.chosen = None if name is None else _usable(parse(name))
    note_change()


@contextmanager
def device(device_name: str | Device) -> Iterator[Device]:
    """Make `device_name` the current device inside the `with` block, in this thread.

    Args:
        device_name: "cpu", "gpu", "gpu:0" and so on.

    Raises:
        ValueError: no device has such a name.
        DeviceError: the device cannot be used; the message says why.

    Example:
        >>> with device("cpu") as chosen:
        ...     print(chosen)
        cpu
    """
    token = device_here.set(_usable(parse(device_name)))
    try:
        yield device_here.get()  # type: ignore[misc]
    finally:
        device_here.reset(token)


def is_accelerated() -> bool:
    """Return whether anything may be on a GPU."""
    return _State.accelerated


def _usable(target: Device) -> Device:
    if target.kind != "cpu":
        array_module(target)
        _State.accelerated = True
    return target


def _find_automatic() -> Device:
    with _guard:
        if _State.automatic is None:
            named = os.environ.get("KERASISH_DEVICE")
            if named is None:
                _State.automatic = _cpu_unless_asked()
            else:
                _State.automatic = _first_gpu() if named == "auto" else _usable(_parse_named(named))
        return _State.automatic


def _cpu_unless_asked() -> Device:
    """Return the CPU; say so where a GPU is present: the code for GPUs is not confirmed yet."""
    if _has_gpu():
        warnings.warn(
            "A GPU is present and not used: kerasish's GPU code has not run on hardware yet. "
            'KERASISH_DEVICE=gpu or kerasish.config.set_device("gpu") uses it, KERASISH_DEVICE=cpu '
            "ends this warning.",
            stacklevel=4,
        )
    return CPU


def _parse_named(named: str) -> Device:
    try:
        return parse(named)
    except ValueError as error:
        raise ValueError(
            f"The environment variable KERASISH_DEVICE={named!r}: expected 'auto', 'cpu', 'gpu' or "
            "'gpu:1'."
        ) from error


def _first_gpu() -> Device:
    """Return the first GPU if it works, else the CPU; say why one that is there does not work."""
    if not _has_gpu():
        return CPU
    try:
        return _usable(Device("gpu"))
    except DeviceError as error:
        warnings.warn(f"{error} The CPU is used instead.", stacklevel=4)
        return CPU


def _has_gpu() -> bool:
    """Return whether there seems to be a GPU, and CuPy to use it with; nothing is imported."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and _has_driver() and importlib.util.find_spec("cupy") is not None


_DRIVERS = (
    "/dev/nvidiactl",
    "/dev/dxg",
    "/dev/nvhost-ctrl-gpu",
    r"C:\Windows\System32\nvcuda.dll",
)


def _has_driver() -> bool:
    """Return whether a driver is there: looking costs nothing, importing CuPy does."""
    return any(os.path.exists(path) for path in _DRIVERS)


_working: set[tuple[Any, int]] = set()  # (module, number) of the devices that have been tried


def array_module(target: Device) -> ArrayModule:
    """Return NumPy for the CPU, CuPy for a GPU.

    Raises:
        DeviceError: the device cannot be used; the message says why.
    """
    if target.kind == "cpu":
        return np
    try:
        cupy = importlib.import_module("cupy")
    except Exception as error:  # a damaged installation raises what it likes
        raise DeviceError(
            f"{target} needs CuPy, which cannot be imported ({error}): install the extra gpu13 or "
            "gpu12, for CUDA 13 or 12."
        ) from error
    if (cupy, target.index) not in _working:
        _try_out(cupy, target)
        _working.add((cupy, target.index))
    return cupy


def _try_out(cupy: ArrayModule, target: Device) -> None:
    try:
        count = cupy.cuda.runtime.getDeviceCount()
        if target.index >= count:
            raise DeviceError(f"{target} does not exist: {count} GPUs are visible to CUDA.")
        with cupy.cuda.Device(target.index):
            # A sum has to be compiled: that, too, fails where CUDA is there in part only.
            result = (cupy.zeros(1, "float32") + 1).get()[0]
        if result != 1:
            raise DeviceError(f"{target} cannot be used: it says that 0 + 1 is {result}.")
    except DeviceError:
        raise
    except Exception as error:
        raise DeviceError(f"{target} cannot be used: {error}") from error


def place_of(array: Array) -> Device:
    """Return the device of an array of NumPy or CuPy.

    Example:
        >>> import numpy
        >>> place_of(numpy.zeros(2))
        Device(kind='cpu', index=0)
    """
    number = getattr(getattr(array, "device", None), "id", None)
    return CPU if number is None else Device("gpu", number)


def place(array: Array, target: Device) -> Array:
    """Return the array's numbers on a device: the array itself if it is there already."""
    if place_of(array) == target:
        return array
    if target.kind == "cpu":
        return array.get()
    cupy = array_module(target)
    _State.accelerated = True
    said = explaining_memory_errors(lambda: f"{array.dtype}{list(array.shape)}", target)
    with said, cupy.cuda.Device(target.index):
        return cupy.asarray(array)


def copied(array: Array) -> Array:
    """Return a copy of the array, on its device."""
    place = place_of(array)
    if place.kind == "cpu":
        return array.copy()
    with array_module(place).cuda.Device(place.index):
        return array.copy()


_GPUS = (2, 13)  # DLPack's numbers of CUDA's memory, and of memory that CUDA shares with the CPU


def lies_on_gpu(x: object) -> bool:
    """Return whether x is an array on a GPU, of any library."""
    if isinstance(x, np.ndarray):
        return False
    if hasattr(x, "__dlpack_device__"):
        return int(x.__dlpack_device__()[0]) in _GPUS
    return hasattr(x, "__cuda_array_interface__")


def adopt(array: Array) -> Array:
    """Return another library's array on a GPU as CuPy's, without a copy."""
    _State.accelerated = True
    cupy = importlib.import_module("cupy")
    if isinstance(array, cupy.ndarray):
        return array
    if hasattr(array, "detach"):  # torch hands out no tensor that its gradients reach
        array = array.detach()
    # DLPack first: the other way does not support bfloat16.
    by_dlpack = hasattr(array, "__dlpack__")
    return cupy.from_dlpack(array) if by_dlpack else cupy.asarray(array)


def set_memory_limit(limit: float | None, name: str | None = None) -> None:
    """Let tensors take at most `limit` of a GPU's memory: bytes (int), or a fraction in (0, 1].

    Args:
        limit: bytes as an int >= 1, a fraction as a float, or None for no limit.
        name: the device; None: the current one.

    Raises:
        ValueError: the limit is neither, or the device is the CPU.
        DeviceError: the device cannot be used.

    Example:
        >>> import kerasish
        >>> kerasish.config.set_memory_limit(0.5, "gpu:0")  # doctest: +SKIP
    """
    whole = isinstance(limit, int)
    if isinstance(limit, bool) or (
        limit is not None and not (limit >= 1 if whole else 0 < float(limit) <= 1)
    ):
        raise ValueError(
            "set_memory_limit: expected bytes as an int, a fraction in (0, 1] or None, "
            f"got {limit!r}."
        )
    target = current() if name is None else parse(name)
    if target.kind == "cpu":
        raise ValueError("set_memory_limit: the CPU's memory has no limit here; name a GPU.")
    cupy = array_module(target)
    with cupy.cuda.Device(target.index):
        pool = cupy.get_default_memory_pool()
        if limit is None:
            pool.set_limit(size=0)
        elif whole:
            pool.set_limit(size=limit)
        else:
            pool.set_limit(fraction=float(limit))


@contextmanager
def explaining_memory_errors(what: Callable[[], str], target: Device) -> Iterator[None]:
    """Turn CuPy's error for want of memory into one that says what is used and free.

    Args:
        what: names what was to be done.

    Raises:
        DeviceMemoryError: there was too little memory; nothing has changed.
        DeviceError: CUDA reports a fault, which may be an earlier launch's.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_fault(error):
            raise
        raise DeviceError(fault(what(), target, error)) from error
    except MemoryError as error:
        if type(error).__name__ != "OutOfMemoryError":
            raise
        raise DeviceMemoryError(out_of_memory(what(), target, error)) from error


def is_fault(error: Exception) -> bool:
    """Return whether CuPy raises it for the status of a call of CUDA."""
    return type(error).__name__ in ("CUDARuntimeError", "CUDADriverError")


def fault(what: str, target: Device, error: Exception) -> str:
    """Return the message for a failed call of CUDA: an earlier launch may be the cause."""
    return (
        f"{what} on {target}: {error} Launches are not waited for, so an earlier one may be meant, "
        "and after a fault every later call of the process fails, too. With "
        "CUDA_LAUNCH_BLOCKING=1 in the environment the launch that is meant raises itself."
    )


def out_of_memory(what: str, target: Device, error: Exception) -> str:
    """Return the message for too little GPU memory: requested, used, free."""
    known = memory(target)
    numbers = ", ".join(f"{name} {count / 2**20:,.1f} MiB" for name, count in known.items())
    return (
        f"{what}: out of memory on {target} ({numbers}): {error} Use smaller batches, free models "
        "and tensors, or raise kerasish.config.set_memory_limit."
    )


def memory(target: Device) -> dict[str, int]:
    """Return a GPU's memory in bytes: `used` by tensors, `kept` for new ones, `free`, `total`."""
    if target.kind == "cpu" or "cupy" not in sys.modules:
        return {}
    cupy = array_module(target)
    with cupy.cuda.Device(target.index):
        free, total = cupy.cuda.runtime.memGetInfo()
        pool = cupy.get_default_memory_pool()
        return {
            "used": pool.used_bytes(), "kept": pool.total_bytes() - pool.used_bytes(),
            "free": free, "total": total,
        }  # fmt: skip
