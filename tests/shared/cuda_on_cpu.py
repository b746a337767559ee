"""CUDA kernels run on the CPU, and a fake of the part of CuPy that launches them.

`FakeCupy` has the names that `kerasish.backends.eager.cuda` asks CuPy for: arrays are NumPy's, with
an address; `RawModule` compiles the source with a C++ compiler and cuda_on_cpu.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import types
from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kerasish import ops
from kerasish.ops.arrays.core import derivatives

HEADER = Path(__file__).with_name("cuda_on_cpu.h")
COMPILER = shutil.which("g++") or shutil.which("clang++")
NO_COMPILER = "no C++ compiler (g++ or clang++) to run CUDA kernels on the CPU"
KERNEL = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\(\d+, \d+\) )?(\w+)\(([^{]*?)\)\s*\{',
    re.DOTALL,
)
SCALARS = {"32": "float32", "16": "float16", "17": "bfloat16"}
BY_VALUE = {
    "i64": np.dtype("int64"), "int": np.dtype("int32"), "u32": np.dtype("uint32"),
    "float": np.dtype("float32"),
}  # fmt: skip


class CudaError(RuntimeError):
    """What a GPU would not do, or do wrong."""


def signatures(source: str) -> dict[str, list[str]]:
    """Return each kernel's parameter types: IN(...), OUT(...), or a type passed by value."""
    found = {}
    for name, parameters in KERNEL.findall(source):
        found[name] = [" ".join(p.split()[:-1]) for p in parameters.split(",")]
    return found


def _wrapper(name: str, kinds: list[str]) -> str:
    given = ", ".join(f"cu::Argument<{k}>::get(a[{i}])" for i, k in enumerate(kinds))
    sizes = ", ".join(f"sizeof({k})" for k in kinds)
    return (
        f"static void call_{name}(void** a) {{ {name}({given}); }}\n"
        f'extern "C" int run_{name}(const unsigned* shape, unsigned seed, long long most, '
        "const cu::Buffer* buffers, long long count, void** a) {\n"
        f"    return cu::launch(shape, seed, most, buffers, count, call_{name}, a);\n"
        "}\n"
        f'extern "C" long long sizes_{name}[] = {{{sizes}}};\n'
    )


@functools.cache
def compile_library(source: str, scalar: str, index: str = "32") -> ctypes.CDLL:
    """Return the source compiled for the CPU, from the cache if it was before."""
    text = source.replace('extern "C" __global__ void', "static void")
    wrappers = "".join(_wrapper(n, k) for n, k in signatures(source).items())
    whole = (
        f'#include "{HEADER}"\n#define SCALAR {scalar}\n#define INDEX {index}\n{text}\n{wrappers}'
    )
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-w"]
    key = hashlib.sha256((whole + HEADER.read_text() + str(options)).encode()).hexdigest()[:20]
    folder = Path(tempfile.gettempdir()) / f"cuda-on-cpu-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / f"{key}.so"
    with open(folder / f"{key}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # processes of one test run need not all compile it
        if not library.exists():
            (folder / f"{key}.cpp").write_text(whole)
            made = folder / f"{key}.{os.getpid()}.so"
            command = [COMPILER, *options, "-o", str(made), str(folder / f"{key}.cpp")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise CudaError(f"the C++ compiler refuses the kernels:\n{done.stderr[:4000]}")
            os.replace(made, library)
    loaded = ctypes.CDLL(str(library))
    loaded.cu_message.restype = ctypes.c_char_p
    return loaded


class Buffer(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("bytes", ctypes.c_longlong))


_running = threading.Lock()
# Arrays whose address was asked for: those that a table of addresses may name.
_addresses: dict[int, int] = {}


def pointer_of(array: Any) -> Any:
    """Return what CuPy's arrays have as `data`: the address, as `ptr`."""
    address = array.__array_interface__["data"][0]
    if array.flags.c_contiguous and array.nbytes:
        _addresses[address] = array.nbytes
    return types.SimpleNamespace(ptr=address)


class Array(np.ndarray):
    """A NumPy array that has its memory's address where CuPy's arrays have it."""

    @property
    def data(self) -> Any:
        return pointer_of(self)

    @property
    def device(self) -> Any:
        return types.SimpleNamespace(id=0)

    def get(self) -> Any:
        """Return the numbers as a plain NumPy array."""
        return np.array(self)


class Function:
    """A kernel, called as CuPy's are: function(grid, block, args)."""

    seed = 0  # another order of threads
    most = 0  # this many blocks are run, the first and the last ones; 0: all
    grid = 0  # at most this many blocks, each of which does the work of several; 0: any number
    dry = False  # launches are counted, and nothing is computed

    def __init__(
        self, library: ctypes.CDLL, name: str, kinds: list[str], counted: Counter,
        counts_bytes: Any = None,
    ) -> None:  # fmt: skip
        self.counts_bytes = counts_bytes
        self.run = getattr(library, f"run_{name}")
        self.message = library.cu_message
        self.sizes = (ctypes.c_longlong * len(kinds)).in_dll(library, f"sizes_{name}")
        self.name, self.kinds, self.counted = name, kinds, counted

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0) -> None:
        shape = (*grid, *[1] * (3 - len(grid)), *block, *[1] * (3 - len(block)))
        self._check(shape, args)
        # A table names the block that does each part; elsewhere blocks step by the grid.
        if Function.grid and not self._has_table() and shape[1] == shape[2] == 1:
            shape = (min(shape[0], Function.grid), *shape[1:])
        holders = [self._argument(i, a) for i, a in enumerate(args)]
        pointers = (ctypes.c_void_p * len(holders))(*(ctypes.addressof(h) for h in holders))
        named = [Buffer(a, n) for a, n in _addresses.items()] if self._has_table() else []
        buffers = (Buffer * max(len(named), 1))(*named)
        numbers = (ctypes.c_uint * 6)(*shape)
        self.counted[self.name] += 1
        if self.counts_bytes is not None:
            self.counts_bytes(self.name, self._bytes(args))
        if Function.dry:
            return
        most = ctypes.c_longlong(Function.most)
        count = ctypes.c_longlong(len(named))
        with _running:  # fibers are the library's, not a thread's
            failed = self.run(numbers, Function.seed, most, buffers, count, pointers)
            if failed:
                raise CudaError(f"{self.name}: {self.message().decode()}")

    def _bytes(self, args: Any) -> int:
        """Return the bytes that a launch reads and writes: each element of its arrays once."""
        read, written = 0, 0
        for kind, given in zip(self.kinds, args):
            names = getattr(getattr(given, "dtype", None), "names", None) or ()
            if "arrays" in names:  # a table: the tensors' sizes, for each array of a tensor
                itemsize = {"32": 4}.get(self.scalar, 2)
                read += int(given["sizes"].sum()) * given["arrays"].shape[0] * itemsize
            elif "(" in kind:
                if kind.startswith("OUT"):
                    written += getattr(given, "nbytes", 0)
                elif not self.name.startswith("gather"):
                    read += getattr(given, "nbytes", 0)
        return read + written * (2 if self.name.startswith("gather") else 1)

    def _has_table(self) -> bool:
        return "Table" in self.kinds

    def _check(self, shape: Any, args: Any) -> None:
        if len(args) != len(self.kinds):
            raise CudaError(f"{self.name} takes {len(self.kinds)} arguments, got {len(args)}")
        x, y, z, *block = shape
        if not (0 < x < 2**31 and 0 < y < 2**16 and 0 < z < 2**16):
            raise CudaError(f"{self.name}: a grid of {shape[:3]} blocks")
        if min(block) < 1 or np.prod(block) > 1024 or block[2] > 64:
            raise CudaError(f"{self.name}: a block of {block} threads")
        sizes = [8 if "(" in k else n for k, n in zip(self.kinds, self.sizes)]
        if sum(sizes) > 4096:
            raise CudaError(f"{self.name}: {sum(sizes)} bytes of arguments")

    def _argument(self, index: int, given: Any) -> Any:
        kind = self.kinds[index]
        where = f"{self.name}, argument {index} ({kind})"
        if "(" in kind:
            given = getattr(given, "_a", given)  # an array of fake_cupy
            if isinstance(given, np.ndarray):
                if not given.flags.c_contiguous:
                    raise CudaError(f"{where}: not contiguous")
                if kind.startswith("OUT") and not given.flags.writeable:
                    raise CudaError(f"{where}: read-only")
                return Buffer(given.__array_interface__["data"][0], given.nbytes)
            if isinstance(given, np.uint64) and given == 0:
                return Buffer(0, 0)
            raise CudaError(f"{where}: got {type(given).__name__}")
        dtype = getattr(given, "dtype", None)
        if dtype is None or (kind in BY_VALUE and dtype != BY_VALUE[kind]):
            raise CudaError(f"{where}: got {given!r}")
        if dtype.itemsize != self.sizes[index]:
            raise CudaError(f"{where}: {dtype.itemsize} bytes for {self.sizes[index]}")
        return ctypes.create_string_buffer(given.tobytes(), dtype.itemsize)


class RawModule:
    """Kernels of one source; `launches` counts their launches by name."""

    def __init__(
        self, launches: Counter, counts_bytes: Any = None, *, code: str,
        options: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        if COMPILER is None:
            pytest.skip(NO_COMPILER)
        self.scalar = next(o.split("=")[1] for o in options if o.startswith("-DSCALAR="))
        index = next((o.split("=")[1] for o in options if o.startswith("-DINDEX=")), "32")
        self.library, self.kinds = compile_library(code, self.scalar, index), signatures(code)
        self.launches, self.counts_bytes = launches, counts_bytes

    def get_function(self, name: str) -> Function:
        """Return a kernel by its name."""
        found = Function(self.library, name, self.kinds[name], self.launches, self.counts_bytes)
        found.scalar = self.scalar
        return found


class FakeCupy(types.ModuleType):
    """The names of CuPy that kernels use, on NumPy; `launches` counts kernels by name."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.launches: Counter = Counter()
        self.ndarray = Array
        self.cuda = types.SimpleNamespace(
            Device=contextlib.nullcontext,
            get_current_stream=lambda: types.SimpleNamespace(ptr=0),
            runtime=types.SimpleNamespace(
                runtimeGetVersion=lambda: 0, deviceSynchronize=lambda: None
            ),
        )
        self.RawModule = functools.partial(RawModule, self.launches)

    def __getattr__(self, name: str) -> Any:
        # What CuPy has as NumPy has it; its arrays come back as ours.
        found = getattr(np, name)
        return _Wrapped(found) if callable(found) and not isinstance(found, type) else found

    def empty(self, shape: Any, dtype: Any = float) -> Array:
        """Return an array of bytes that no kernel has written: NaN, or -1."""
        return poisoned(shape, dtype)


class _Wrapped:
    """A function of NumPy's, or one of its ufuncs, whose arrays are the fake's."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"):  # CuPy says nothing about NaN and infinity
            found = self._function(*args, **kwargs)
        return found.view(Array) if isinstance(found, np.ndarray) else found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def poisoned(shape: Any, dtype: Any) -> Array:
    """Return an array whose bytes are all ones, aligned as memory of a GPU is."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.full(count + 256, 255, np.uint8)
    start = -memory.__array_interface__["data"][0] % 256
    return memory[start : start + count].view(dtype).reshape(shape).view(Array)


def put(numbers: Any, dtype: Any = None, offset: int = 0) -> Array:
    """Return the numbers as an array of the fake, `offset` elements off the alignment."""
    numbers = np.asarray(numbers, dtype)
    buffer = poisoned(numbers.size + offset, numbers.dtype)
    array = buffer[offset:].reshape(numbers.shape)
    array[...] = numbers
    return array


# --- what tests share -----------------------------------------------------------------------------

DTYPES = ("float32", "float16", "bfloat16")
# Relative to the largest number of the result.
TOLERANCES = {"float32": 4e-6, "float16": 3e-3, "bfloat16": 2.4e-2}


def dtype_of(name: str) -> Any:
    """Return NumPy's dtype of that name, bfloat16 included."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def numbers(shape: Any, dtype: str, offset: int = 0, scale: float = 1.0, seed: int = 0) -> Array:
    """Return random numbers as an array of the fake, `offset` elements off the alignment."""
    rng = np.random.default_rng(seed + 1)
    return put((rng.standard_normal(shape) * scale).astype(dtype_of(dtype)), offset=offset)


def wide(x: Any) -> Any:
    """Return x as a plain float64 array."""
    return np.array(x, dtype=np.float64)


def gradients(f: Any, inputs: Any, g: Any) -> list[Any]:
    """Return the gradients of f, written in ops, at `inputs` in float64, g arriving."""
    found = derivatives["vjp"](f, [ops.convert_to_tensor(wide(x)) for x in inputs], [g])
    return [x.numpy() for x in found]


def assert_close(found: Any, expected: Any, dtype: str, factor: float = 1.0) -> None:
    """Compare a result with float64's, by the dtype's tolerance."""
    found, expected = wide(found), wide(expected)
    assert found.shape == expected.shape
    finite = np.abs(expected[np.isfinite(expected)])
    size = max(1.0, finite.max()) if finite.size else 1.0
    atol = TOLERANCES[dtype] * factor * size
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
