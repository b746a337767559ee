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
import os
import struct
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kerasish.backends import disk, trust
from kerasish.backends.onednn import native
from kerasish.backends.static.codegen.description import Kernel
from kerasish.backends.static.machine import assembly, machine_code
from kerasish.backends.static.machine.assembly import Target
from kerasish.backends.static.machine.machine_code import Code
from kerasish.backends.trust import TrustedFolder
from kerasish.backends.wheels import version_of
from kerasish.first_use import find
from kerasish.ops.basic import bessel

if TYPE_CHECKING:
    from kerasish.backends.static.codegen.attention import Heads
    from kerasish.backends.static.codegen.direct import Direct
    from kerasish.backends.static.codegen.interleaved import Interleaved
    from kerasish.backends.static.codegen.kernel_gradient import KernelGradient
    from kerasish.backends.static.codegen.matmul import Matmul
    from kerasish.backends.static.codegen.packed import PackedProduct
    from kerasish.backends.static.codegen.plain import Plain
    from kerasish.backends.static.codegen.pooling import Pooling
    from kerasish.backends.static.codegen.row_sums import RowSums
    from kerasish.backends.static.codegen.thin import ThinProduct
    from kerasish.backends.static.codegen.time_steps import TimeSteps
    from kerasish.backends.static.codegen.winograd import Winograd
    from kerasish.backends.static.codegen.winograd_gradient import WinogradGradient
    from kerasish.backends.static.codegen.winograd_kernel import WinogradKernel
    from kerasish.backends.static.codegen.winograd_sums import WinogradSums

    Product: TypeAlias = Direct | Interleaved | Matmul | PackedProduct | ThinProduct
    Loops: TypeAlias = Heads | KernelGradient | Plain | Pooling | RowSums | TimeSteps
    Convolution: TypeAlias = Winograd | WinogradGradient | WinogradKernel | WinogradSums
    Description: TypeAlias = Kernel | Loops | Product | Convolution

FORMAT = b"kerasish kernels 1\n"
WHAT = "compiled kernels"
LEAST_TEXT = 30_000  # characters of LLVM IR per thread, which take about 10 ms to compile


class KernelText(NamedTuple):
    """Functions given as LLVM IR, in which @SYMBOL stands for the record's function."""

    source: str
    declared: tuple[str, ...] = ()


class Statistics:
    """Statistics of the cache in this process: kernels compiled, or read from disk."""

    compiled = read = 0


statistics = Statistics()
# By type as well: descriptions are tuples, and those of two types may have equal fields.
_addresses: dict[tuple[type, Hashable, Target], int] = {}
_symbols: dict[str, int] = {}  # of all code that is loaded: a pack holds several kernels
_lock = threading.RLock()


def compile_many(
    kernels: Sequence[Description | KernelText], target: Target | None = None
) -> list[int]:
    """Return the addresses of the kernels' functions `i32 f(arguments)`; compile missing ones.

    Missing kernels are compiled together: faster than one by one, and on all threads.
    """
    target = target or machine_code.host_target()
    with _lock:
        wanted = [(type(k), k, target) for k in kernels]
        missing = [key[1] for key in dict.fromkeys(wanted) if key not in _addresses]
        if missing:
            _find(missing, target)
        return [_addresses[key] for key in wanted]


def compile_one(kernel: Description | KernelText, target: Target | None = None) -> int:
    """The address of one kernel's function."""
    return compile_many([kernel], target)[0]


def forget() -> None:
    """Clear the cache in memory (code in use stays); the disk does not change."""
    with _lock:
        _addresses.clear()
        _symbols.clear()


def _find(missing: Sequence[Hashable], target: Target) -> None:
    keys = {kernel_key(k, target): k for k in missing}
    folder = cache_folder()
    unknown = [key for key in keys if key not in _symbols]
    _load(_read(folder, unknown) if folder and unknown else [])
    absent = {key: k for key, k in keys.items() if key not in _symbols}
    statistics.read += len(keys) - len(absent)
    if absent:
        codes = build(absent, target, native.get_threads())
        _load(codes)
        statistics.compiled += len(absent)
        if folder:
            for code in codes:
                _write(folder, code)
    for key, kernel in keys.items():
        _addresses[type(kernel), kernel, target] = _symbols[key]


def _load(codes: list[Code]) -> None:
    for addresses in machine_code.load(codes):
        _symbols.update(addresses)


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
    """Return, for each symbol, the LLVM IR of its kernel and the intrinsics to declare."""
    results: dict[str, tuple[str, set[str]]] = {}
    for symbol, kernel in kernels.items():
        if isinstance(kernel, KernelText):
            source = kernel.source.replace("@SYMBOL", f"@{symbol}")
            results[symbol] = source, set(kernel.declared)
            continue
        results[symbol] = _generator_of(kernel)(kernel, symbol, target)
    return results


def _generator_of(kernel: Hashable) -> Callable[[Any, str, Target], tuple[str, set[str]]]:
    """Return what gives the LLVM IR of a kernel, and the intrinsics to declare.

    A kind of description lies in the module of its generator. What a cache holds needs none.
    """
    kind = type(kernel)
    place = f"{__package__}.generate" if kind is Kernel else kind.__module__
    if not place.startswith(f"{__package__}."):
        raise TypeError(f"no code can be generated for a {kind.__name__}: {kernel!r}")
    result: Callable[[Any, str, Target], tuple[str, set[str]]] = find(f"{place}:generate")
    return result


# --- keys -----------------------------------------------------------------------------------------


def kernel_key(kernel: Hashable, target: Target) -> str:
    """Return the symbol and file name of a kernel: a hash of everything its code depends on."""
    text = f"{kernel!r}|{target!r}|{_versions()}"
    return "k" + hashlib.sha256(text.encode()).hexdigest()[:40]


@lru_cache(maxsize=1)
def _versions() -> str:
    """llvmlite's version and a hash of the generator's own source."""
    digest = hashlib.sha256()
    here = os.path.dirname(__file__)
    own = [os.path.join(here, name) for name in os.listdir(here) if name.endswith(".py")]
    for path in sorted([*own, assembly.__file__, machine_code.__file__, bessel.__file__]):
        with open(path, "rb") as source:
            digest.update(source.read())
    return f"{version_of('llvmlite')}|{digest.hexdigest()}"


# --- disk -----------------------------------------------------------------------------------------


def cache_folder() -> Path | None:
    """Return the folder of kernels on disk; None if there is none."""
    return disk.cache_folder("kernels")


def _read(path: Path, keys: list[str]) -> list[Code]:
    """Return the packs that hold these kernels; none if others can write the folder."""
    packs: dict[str, Code | None] = {}
    symbols: set[str] = set()
    try:
        with trust.open_folder(path) as folder:
            for key in keys:
                name = None if key in symbols else _pack_of(folder, path, key)
                if name and name not in packs:
                    code = packs[name] = _read_pack(folder, path, name)
                    symbols.update(() if code is None else code.symbols)
    except trust.UntrustedError as error:
        trust.warn_untrusted(path, WHAT, error)
        return []
    except OSError:
        return []
    return [code for code in packs.values() if code is not None]


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
    # Latin-1 takes all bytes, and no import.
    name = (_read_file(folder, path, key[1:3], key) or b"").decode("latin-1")
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
