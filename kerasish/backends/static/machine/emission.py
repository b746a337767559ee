"""LLVM modules compiled at the same time, each by a separate thread.

llvmlite's lock lets only one thread at a time call LLVM. LLVM itself can compile modules of
different contexts at the same time. So the one expensive call, which compiles a module to an
object, calls LLVM's library without llvmlite's lock; all other calls use llvmlite.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any


def compile_modules(texts: Sequence[str], machine: Callable[[], Any]) -> list[bytes]:
    """Return the object file of each module, given as LLVM IR; one thread per module.

    Args:
        texts: the modules.
        machine: returns a new target machine of llvmlite.
    """
    if len(texts) == 1 or _emitter() is None:
        return [_object_of(text, machine) for text in texts]
    results: list[Any] = [None] * len(texts)

    def work(number: int) -> None:
        try:
            results[number] = _object_apart(texts[number], machine)
        except (RuntimeError, OSError, MemoryError) as error:
            results[number] = error

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, len(texts))]
    for thread in threads:
        thread.start()
    work(0)
    for thread in threads:
        thread.join()
    for result in results:
        if not isinstance(result, bytes):
            raise result or RuntimeError("LLVM: a module was not compiled")
    return results


def _object_of(text: str, machine: Callable[[], Any]) -> bytes:
    from llvmlite import binding

    result: bytes = machine().emit_object(binding.parse_assembly(text))
    return result


def _object_apart(text: str, machine: Callable[[], Any]) -> bytes:
    """Return a module's object file, while other threads may compile other modules."""
    from llvmlite import binding

    emitter = _emitter()
    assert emitter is not None
    context = binding.create_context()
    module = binding.parse_assembly(text, context)
    try:
        return emitter.emit(machine(), module)
    finally:
        module.close()
        context.close()


class _Emitter:
    """LLVM's code generator in llvmlite's library, as functions without llvmlite's lock."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer = ctypes.c_void_p
        self._emit = library.LLVMPY_TargetMachineEmitToMemory
        self._emit.argtypes = [pointer, pointer, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
        self._emit.restype = pointer
        self._start = library.LLVMPY_GetBufferStart
        self._start.argtypes, self._start.restype = [pointer], pointer
        self._size = library.LLVMPY_GetBufferSize
        self._size.argtypes, self._size.restype = [pointer], ctypes.c_size_t
        self._free = library.LLVMPY_DisposeMemoryBuffer
        self._free.argtypes, self._free.restype = [pointer], None

    def emit(self, machine: Any, module: Any) -> bytes:
        """Return the object file of a module; no other thread uses its context or the machine."""
        message = ctypes.c_char_p()
        buffer = self._emit(machine, module, 1, ctypes.byref(message))
        if not buffer:
            raise RuntimeError(f"LLVM: {(message.value or b'no reason given').decode()}")
        try:
            return ctypes.string_at(self._start(buffer), self._size(buffer))
        finally:
            self._free(buffer)


@lru_cache(maxsize=1)
def _emitter() -> _Emitter | None:
    """Return the code generator; None if its library is not in the folder of llvmlite."""
    from llvmlite import binding
    from llvmlite.utils import get_library_name

    path = os.path.join(os.path.dirname(binding.__file__), get_library_name())
    try:
        return _Emitter(ctypes.CDLL(path))
    except (OSError, AttributeError):
        return None
