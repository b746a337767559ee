"""The kernel cache: structure -> address of machine code, in memory and on disk.

    addresses = compile_many([kernel, other])

Equal descriptions share one piece of code in the process. On disk (`KERASISH_CACHE_DIR`, else
`$XDG_CACHE_HOME/kerasish`, else `~/.cache/kerasish`) kernels that were compiled together are in one
pack, and a small file per kernel names its pack. A key covers the structure, the generator's
source, llvmlite's version and the target. Files are written under another name and renamed, so any
number of processes may share the folder. A file with a wrong checksum is ignored and written again.
Files that another user may have written are not run (see `backends/trust.py`); one warning reports
this. If the folder cannot be written, the cache is in memory only, without a warning.
`KERASISH_CACHE_DIR=""` (empty) turns the disk off.
"""

from __future__ import annotations

import hashlib
import json
import struct
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from kerasish.backends import disk, trust
from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import (
    attention,
    direct,
    kernel_gradient,
    matmul,
    packed,
    plain,
    pooling,
    thin,
    time_steps,
)
from kerasish.backends.static.codegen import generate as loops
from kerasish.backends.static.codegen.description import Kernel
from kerasish.backends.static.machine import machine_code
from kerasish.backends.static.machine.assembly import Target
from kerasish.backends.static.machine.machine_code import Code
from kerasish.backends.trust import TrustedFolder
from kerasish.backends.wheels import version_of
from kerasish.ops.basic import bessel

# Kind of description -> the function that returns its LLVM IR and the intrinsics to declare.
_GENERATORS: dict[type, Callable[[Any, str, Target], tuple[str, set[str]]]] = {
    Kernel: loops.generate,
    attention.Heads: attention.generate,
    direct.Direct: direct.generate,
    kernel_gradient.KernelGradient: kernel_gradient.generate,
    matmul.Matmul: matmul.generate,
    packed.PackedProduct: packed.generate,
    **dict.fromkeys(get_args(plain.Plain), plain.generate),
    pooling.Pooling: pooling.generate,
    thin.ThinProduct: thin.generate,
    time_steps.TimeSteps: time_steps.generate,
}
FORMAT = b"kerasish kernels 1\n"
WHAT = "compiled kernels"
LEAST_TEXT = 30_000  # characters of LLVM IR per thread, which take about 10 ms to compile


@dataclass(frozen=True)
class Text:
    """Functions given as LLVM IR, in which @SYMBOL stands for the record's function."""

    source: str
    declared: tuple[str, ...] = ()


Generated = (
    Kernel
    | matmul.Matmul
    | direct.Direct
    | kernel_gradient.KernelGradient
    | packed.PackedProduct
    | pooling.Pooling
    | time_steps.TimeSteps
    | attention.Heads
    | thin.ThinProduct
    | plain.Plain
    | Text
)


@dataclass
class Statistics:
    """Statistics of the cache in this process: kernels compiled, or read from disk."""

    compiled: int = 0
    read: int = 0


statistics = Statistics()
_addresses: dict[tuple[Hashable, Target], int] = {}
_lock = threading.RLock()


def compile_many(kernels: Sequence[Generated], target: Target | None = None) -> list[int]:
    """Return the addresses of the kernels' functions `i32 f(arguments)`; compile missing ones.

    Missing kernels are compiled together: faster than one by one, and on all threads.
    """
    target = target or machine_code.host_target()
    with _lock:
        missing = list(dict.fromkeys(k for k in kernels if (k, target) not in _addresses))
        if missing:
            _find(missing, target)
        return [_addresses[k, target] for k in kernels]


def compile_one(kernel: Generated, target: Target | None = None) -> int:
    """The address of one kernel's function."""
    return compile_many([kernel], target)[0]


def forget() -> None:
    """Clear the cache in memory (code in use stays); the disk does not change."""
    with _lock:
        _addresses.clear()


def _find(missing: Sequence[Hashable], target: Target) -> None:
    keys = {kernel_key(k, target): k for k in missing}
    folder = cache_folder()
    codes = _read(folder, list(keys)) if folder else []
    for addresses in machine_code.load(codes):
        for symbol, address in addresses.items():
            if symbol in keys:
                _addresses[keys[symbol], target] = address
    absent = {key: k for key, k in keys.items() if (k, target) not in _addresses}
    statistics.read += len(keys) - len(absent)
    if not absent:
        return
    codes = build(absent, target, native.get_threads())
    for addresses in machine_code.load(codes):
        for symbol, address in addresses.items():
            _addresses[absent[symbol], target] = address
    statistics.compiled += len(absent)
    if folder:
        for code in codes:
            _write(folder, code)


def build(kernels: dict[str, Hashable], target: Target, threads: int = 1) -> list[Code]:
    """Compile kernels, given by symbol, into pieces of code, at most one per thread."""
    functions = texts(kernels, target)
    total = sum(len(text) for text, _ in functions.values())
    parts: list[list[str]] = [[] for _ in range(max(1, min(threads, total // LEAST_TEXT)))]
    sizes = [0] * len(parts)
    for symbol in sorted(functions, key=lambda s: -len(functions[s][0])):
        smallest = sizes.index(min(sizes))
        parts[smallest].append(symbol)
        sizes[smallest] += len(functions[symbol][0])
    modules = []
    for symbols in parts:
        declared = {d for s in symbols for d in functions[s][1]}
        text = machine_code.module_text([functions[s][0] for s in symbols], declared, target)
        modules.append((text, symbols))
    return machine_code.emit(modules, target)


def texts(kernels: dict[str, Hashable], target: Target) -> dict[str, tuple[str, set[str]]]:
    """For each symbol the LLVM IR of its kernel, and the intrinsics to declare."""
    results: dict[str, tuple[str, set[str]]] = {}
    for symbol, kernel in kernels.items():
        if isinstance(kernel, Text):
            source = kernel.source.replace("@SYMBOL", f"@{symbol}")
            results[symbol] = source, set(kernel.declared)
            continue
        generate = _GENERATORS.get(type(kernel))
        if generate is None:
            raise TypeError(f"no code can be generated for a {type(kernel).__name__}: {kernel!r}")
        results[symbol] = generate(kernel, symbol, target)
    return results


# --- keys -----------------------------------------------------------------------------------------


def kernel_key(kernel: Hashable, target: Target) -> str:
    """The kernel's symbol and the name of its file: a hash of everything its code depends on."""
    text = f"{kernel!r}|{target!r}|{_versions()}"
    return "k" + hashlib.sha256(text.encode()).hexdigest()[:40]


@lru_cache(maxsize=1)
def _versions() -> str:
    """llvmlite's version and a hash of the generator's own source."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    machine = [here.parent / "machine" / name for name in ("assembly.py", "machine_code.py")]
    for path in sorted([*here.glob("*.py"), *machine, Path(bessel.__file__)]):
        digest.update(path.read_bytes())
    return f"{version_of('llvmlite')}|{digest.hexdigest()}"


# --- disk -----------------------------------------------------------------------------------------


def cache_folder() -> Path | None:
    """Where kernels are kept on disk; None if nowhere."""
    return disk.cache_folder("kernels")


def _read(path: Path, keys: list[str]) -> list[Code]:
    """Return the packs that hold these kernels; none if others can write the folder."""
    try:
        with trust.open_folder(path) as folder:
            names = dict.fromkeys(n for key in keys if (n := _pack_of(folder, path, key)))
            packs = [_read_pack(folder, path, name) for name in names]
    except trust.UntrustedError as error:
        trust.warn_untrusted(path, WHAT, error)
        return []
    except OSError:
        return []
    return [code for code in packs if code is not None]


def _read_file(folder: TrustedFolder, path: Path, *parts: str) -> bytes | None:
    try:
        return folder.read(*parts)
    except trust.UntrustedError as error:
        trust.warn_untrusted(path, WHAT, error)
        return None
    except OSError:
        return None


def _pack_of(folder: TrustedFolder, path: Path, key: str) -> str | None:
    """Return the name of the pack that holds a kernel."""
    name = (_read_file(folder, path, key[1:3], key) or b"").decode("ascii", "replace")
    return name if name.isascii() and name.isalnum() else None


def _read_pack(folder: TrustedFolder, path: Path, name: str) -> Code | None:
    data = _read_file(folder, path, name)
    if data is None:
        return None
    try:
        return unpack(data)
    except ValueError:
        return None


def unpack(data: bytes) -> Code:
    """A pack's code.

    Raises:
        ValueError: it is damaged.
    """
    body = disk.unseal(FORMAT, data)
    (length,) = struct.unpack_from("<I", body)
    facts = json.loads(body[4 : 4 + length])
    return Code(facts["kind"], body[4 + length :], facts["symbols"])


def pack(code: Code) -> bytes:
    """Code as the bytes of a pack."""
    facts = json.dumps({"kind": code.kind, "symbols": code.symbols}).encode()
    body = struct.pack("<I", len(facts)) + facts + code.data
    return disk.seal(FORMAT, body)


def _write(folder: Path, code: Code) -> None:
    data = pack(code)
    name = "p" + hashlib.sha256(data).hexdigest()[:40]
    try:
        trust.make_folder(folder)
        trust.open_folder(folder).close()  # else the file would never be read
        disk.replace(folder / name, data)
        for key in code.symbols:
            trust.make_folder(folder / key[1:3])
            disk.replace(folder / key[1:3] / key, name.encode())
    except trust.UntrustedError as error:
        trust.warn_untrusted(folder, WHAT, error)
    except OSError:
        return  # no disk, no permission, no space: only the cache in memory is used
