"""A fake of the used part of CuPy's API, on NumPy: refuses what CuPy refuses, counts the rest.

Arrays of NumPy's are refused where CuPy refuses them, implicit conversions to NumPy too; copies in
both directions, allocations and synchronizations are counted; a limit of memory is kept.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections import Counter
from typing import Any

import cuda_on_cpu
import cupy_rules
import numpy as np

counts: Counter[str] = Counter()
launches: Counter[str] = Counter()  # of CUDA kernels, which run on the CPU
log: list[str] = []  # what streams were asked for, in order


class Work:
    """What the device would do: launches by name, and the bytes that each reads and writes."""

    def __init__(self) -> None:
        self.launches: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def clear(self) -> None:
        self.launches.clear()
        self.bytes.clear()

    def add(self, name: str, inputs: Any, results: Any) -> None:
        """Count a launch, unless the results are views of the inputs."""
        read = [a for a in _flat(inputs) if isinstance(a, np.ndarray)]
        made = [a for a in _flat(results) if isinstance(a, np.ndarray)]
        made = [a for a in made if not any(np.may_share_memory(a, r) for r in read)]
        if made:
            self.put(name, sum(a.nbytes for a in [*read, *made]))

    def put(self, name: str, count: int) -> None:
        """Count a launch that moves this many bytes."""
        self.launches[name] += 1
        self.bytes[name] += count


def _flat(values: Any) -> list[Any]:
    if isinstance(values, (list, tuple)):
        return [v for part in values for v in _flat(part)]
    return list(_flat(list(values.values()))) if isinstance(values, dict) else [values]


work = Work()


class OutOfMemoryError(MemoryError):
    """The pool's limit would be exceeded."""


class _Pool:
    def __init__(self) -> None:
        self.used, self.limit = 0, 0

    def take(self, size: int) -> None:
        if self.limit and self.used + size > self.limit:
            raise OutOfMemoryError(
                f"Out of memory allocating {size} bytes (allocated so far: {self.used} bytes, "
                f"limit set to: {self.limit} bytes)."
            )
        counts["allocations"] += 1
        self.used += size

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self.limit = int(fraction * TOTAL) if fraction is not None else int(size or 0)

    def free_all_blocks(self) -> None:
        log.append("blocks freed")

    def used_bytes(self) -> int:
        return self.used

    def total_bytes(self) -> int:
        return self.used


TOTAL = 2**30
pool = _Pool()


class ndarray:  # noqa: N801 - CuPy's name
    """An array "on the device"."""

    __array_priority__ = 100
    __array_ufunc__ = None

    def __init__(self, array: Any, device: int = 0) -> None:
        self._bytes = array.nbytes if array.base is None else 0
        self._pool = pool  # modules lose their names before the last arrays go
        pool.take(self._bytes)
        self._a, self._index = array, device

    def __del__(self) -> None:
        if hasattr(self, "_pool"):
            self._pool.used -= self._bytes

    @property
    def device(self) -> Any:
        return types.SimpleNamespace(id=self._index)

    @property
    def data(self) -> Any:
        return cuda_on_cpu.pointer_of(self._a)

    @property
    def __cuda_array_interface__(self) -> Any:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (0, False), "version": 3}

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Use `.get()`.")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        rule = cupy_rules.method(name)
        found = getattr(self._a, name)
        if isinstance(found, np.ndarray):
            return _wrapped(found)
        if not callable(found):
            return found
        return _Function(found, cupy_rules.bound(rule), self._a)

    def __getitem__(self, key: Any) -> Any:
        found = np.asarray(self._a[_index(key)])
        work.add("gather", (self._a[:0], found, key), found)
        return _wrapped(found)

    def __setitem__(self, key: Any, value: Any) -> None:
        numbers = _unwrapped(value)
        place = self._a[_index(key)]
        work.put("copy", place.nbytes + getattr(numbers, "nbytes", 0))
        self._a[_index(key)] = numbers

    def fill(self, value: Any) -> None:
        work.put("fill", self._a.nbytes)
        self._a.fill(value)

    def __len__(self) -> int:
        return len(self._a)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __hash__(self) -> int:
        return id(self)

    def get(self, stream: Any = None) -> Any:
        counts["to host"] += 1
        return self._a.copy()

    def set(self, array: Any, stream: Any = None) -> None:
        assert isinstance(array, np.ndarray)
        counts["to device"] += 1
        log.append(f"copy in {getattr(stream, 'name', 'the default stream')}")
        self._a[...] = array

    def copy(self) -> ndarray:
        work.put("copy", 2 * self._a.nbytes)
        return _wrapped(self._a.copy())

    def __dlpack__(self, **options: Any) -> Any:
        return self._a.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return (2, self._index)

    def item(self) -> Any:
        counts["to host"] += 1
        return self._a.item()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        return self._a.item().__index__() if self.get() is not None else 0


def _operator(name: str) -> Any:
    def operate(self: ndarray, *others: Any) -> Any:
        if any(isinstance(o, np.ndarray) and o.ndim for o in others):
            raise TypeError(f"Unsupported type {np.ndarray}")
        given = [_unwrapped(o) for o in others]
        found = getattr(self._a, name)(*given)
        work.add(name.strip("_"), [self._a, *given], found)
        return found if found is NotImplemented else _wrapped(np.asarray(found))

    return operate


for _name in (
    "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift radd rsub rmul rtruediv "
    "rfloordiv rmod rpow rmatmul rand ror rxor rlshift rrshift neg pos abs invert eq ne lt le gt ge"
).split():
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))


def _index(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(_index(k) for k in key)
    return key._a if isinstance(key, ndarray) else key  # CuPy takes NumPy's arrays as indices, too


def _unwrapped(value: Any) -> Any:
    if isinstance(value, ndarray):
        return value._a
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, (list, tuple)):
        parts = [_unwrapped(v) for v in value]
        if isinstance(value, list):
            return parts
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _wrapped(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return ndarray(np.asarray(value))
    if isinstance(value, tuple):
        parts = [_wrapped(v) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return [_wrapped(v) for v in value] if isinstance(value, list) else value


class _Function:
    """A function of NumPy's, or one of its ufuncs, that takes and gives arrays on the device."""

    def __init__(self, function: Any, rule: Any = None, owner: Any = None) -> None:
        self._function, self._rule, self._owner = function, rule, owner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        cupy_rules.check_arguments(self._rule, args, kwargs)
        args = tuple(_unwrapped(a) for a in args)
        out = kwargs.get("out")
        if isinstance(out, ndarray):  # memory that is there
            given = {k: _unwrapped(v) for k, v in kwargs.items()}
            self._function(*args, **given)
            work.put(self._name(), sum(a.nbytes for a in (*args, out) if hasattr(a, "nbytes")))
            return out
        with np.errstate(all="ignore"):
            found = self._function(*args, **{k: _unwrapped(v) for k, v in kwargs.items()})
        if self._name() not in _HOST_ONLY:
            given = [a for a in _flat([args, self._owner]) if isinstance(a, np.ndarray)]
            work.add(self._name(), given, np.asarray(found) if np.isscalar(found) else found)
        if not kwargs and isinstance(self._function, np.ufunc):
            cupy_rules.check_dtypes(self._rule, args, found)
        return _wrapped(found)

    def _name(self) -> str:
        return str(getattr(self._function, "__name__", "a function"))

    def __getattr__(self, name: str) -> Any:
        rule = None if self._rule is None else getattr(self._rule, name)
        return _Function(getattr(self._function, name), rule)


_HOST_ONLY = {"empty", "empty_like", "result_type", "can_cast", "broadcast_shapes", "ndim", "shape"}


def _put(value: Any, dtype: Any = None, copy: bool = False, **kwargs: Any) -> Any:
    if isinstance(value, ndarray):
        if copy or (dtype is not None and value.dtype != dtype):
            work.put("astype", 2 * value._a.nbytes)
            return _wrapped(np.array(value._a, dtype))
        return value
    if isinstance(value, (list, tuple)):
        value = [v._a if isinstance(v, ndarray) else v for v in value]
    counts["to device"] += 1
    return ndarray(np.array(value, dtype))


class _OnCPU:
    """An array of another library, whose DLPack says that it is on the CPU, as it is."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return (1, 0)


class Stream:
    def __init__(self, name: str = "a stream", non_blocking: bool = False) -> None:
        self.name, self.ptr = "the copying stream" if non_blocking else name, 0

    def record(self) -> Any:
        log.append(f"record in {self.name}")
        return _Event()

    def wait_event(self, event: Any) -> None:
        assert isinstance(event, _Event)
        log.append(f"wait in {self.name}")

    def synchronize(self) -> None:
        counts["synchronizations"] += 1

    def __enter__(self) -> Stream:
        _Streams.entered.append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        _Streams.entered.pop()


class _Streams:
    default = Stream("the computing stream")
    entered: list[Stream] = []  # the innermost last

    @classmethod
    def current(cls) -> Stream:
        return cls.entered[-1] if cls.entered else cls.default


class _Event:
    def synchronize(self) -> None:
        log.append("wait on the host for a copy")


class _Device:
    def __init__(self, index: int = 0) -> None:
        self.id = index

    def __enter__(self) -> _Device:
        return self

    def __exit__(self, *error: Any) -> None:
        return None


def make(devices: int = 1) -> types.ModuleType:
    """Return a module like CuPy on a machine with this many GPUs."""
    counts.clear()
    log.clear()
    launches.clear()
    work.clear()
    pool.limit = 0
    module = types.ModuleType("cupy")
    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: devices,
        memGetInfo=lambda: (TOTAL - pool.used, TOTAL),
        runtimeGetVersion=lambda: 0,  # of no library there is
        driverGetVersion=lambda: 0,
        deviceSynchronize=lambda: None,
        getDeviceProperties=lambda index: {
            "name": b"fake",
            "multiProcessorCount": 1,
            "totalGlobalMem": TOTAL,
        },
    )
    own = {
        "is_fake": True,
        "__version__": "fake",
        "ndarray": ndarray,
        "RawModule": functools.partial(cuda_on_cpu.RawModule, launches, work.put),
        "asarray": _put,
        "from_dlpack": lambda array: ndarray(np.from_dlpack(_OnCPU(array))),
        "array": lambda value, dtype=None, copy=True, **kwargs: _put(value, dtype, copy),
        "ascontiguousarray": lambda value, dtype=None: _wrapped(
            np.ascontiguousarray(_unwrapped(value), dtype)
        ),
        "asnumpy": lambda value: value.get() if isinstance(value, ndarray) else np.asarray(value),
        "get_default_memory_pool": lambda: pool,
        "cuda": types.SimpleNamespace(
            Device=_Device, Stream=Stream, runtime=runtime, get_current_stream=_Streams.current,
            alloc_pinned_memory=lambda size: bytearray(size),
            memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        ),
    }  # fmt: skip
    for name, value in own.items():
        setattr(module, name, value)
    module.__getattr__ = _lookup  # type: ignore[method-assign]
    return module


def _lookup(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _found(np, (name,))


def _found(module: Any, path: tuple[str, ...]) -> Any:
    found, rule = getattr(module, path[-1]), cupy_rules.real(path)
    if isinstance(found, types.ModuleType):
        return _Module(found, path)
    plain = isinstance(found, (type, np.dtype)) or not callable(found)
    return found if plain else _Function(found, rule)


class _Module:
    def __init__(self, module: Any, path: tuple[str, ...]) -> None:
        self._module, self._path = module, path

    def __getattr__(self, name: str) -> Any:
        return _found(self._module, (*self._path, name))


@contextlib.contextmanager
def installed(monkeypatch: Any, devices: int = 1) -> Any:
    """Make `import cupy` give the fake, with no device chosen before and after."""
    import sys

    import kerasish.devices as ours

    module = make(devices)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "cupy", module)
        patch.setattr(ours._State, "chosen", None)
        patch.setattr(ours._State, "automatic", None)
        patch.setattr(ours._State, "accelerated", False)
        yield module
