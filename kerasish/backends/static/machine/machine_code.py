"""From LLVM IR to executable code: emit objects, link them to flat images, map these.

The code of kernels has no external references, so an x86-64 ELF object can be linked once into a
flat, position-independent image. Loading it from disk is then one copy and one mprotect. For the 42
kernels of a small convolutional network this takes 2.5 ms; llvmlite takes 77 ms to import and link
the same objects, which delays the first step of a process by 70 ms. Objects of other kinds are
loaded by llvmlite.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from kerasish.backends.static.machine.assembly import Target
from kerasish.backends.static.machine.emission import compile_modules
from kerasish.environment import choice

LEVELS = {
    "avx512": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "avx2": ("avx2", "fma", "f16c", "bmi2"),
    "sse": ("sse4_1", "sse4_2", "popcnt", "ssse3"),
}
_CPUS = {"avx512": "x86-64-v4", "avx2": "x86-64-v3", "sse": "x86-64-v2"}
_PC32, _PLT32 = 2, 4


class Code(NamedTuple):
    """Machine code and the offsets of its functions.

    Args:
        kind: "image" (flat, position-independent) or "object" (to be linked by llvmlite).
    """

    kind: str
    data: bytes
    symbols: dict[str, int]


def level_setting() -> str:
    """Return KERASISH_CPU: the highest level that the user allows; "" is all of them.

    Raises:
        ValueError: it is not a level.
    """
    return choice("KERASISH_CPU", LEVELS)


def host_target(limit: str = "") -> Target:
    """The target of this machine.

    Args:
        limit: "avx512", "avx2" or "sse" is the highest level used; "" reads KERASISH_CPU, or else
            uses the highest level of the processor.

    Raises:
        ValueError: `limit` or KERASISH_CPU is not one of these levels.
        OSError: the processor is an x86-64 without SSE 4.2.
    """
    limit = limit or level_setting()
    if limit and limit not in LEVELS:
        raise ValueError(f"host_target: limit is one of {list(LEVELS)}, got {limit!r}.")
    return _capped_target(limit)


@lru_cache(maxsize=8)
def _capped_target(limit: str) -> Target:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return Target("generic", "")
    flags = _processor_flags()
    order = list(LEVELS)
    for level in order[order.index(limit) if limit in order else 0 :]:
        if all(flag in flags for flag in LEVELS[level]):
            bfloat16 = level == "avx512" and "avx512_bf16" in flags
            return Target(level, _CPUS[level], "+avx512bf16" if bfloat16 else "")
    raise OSError("the processor has no SSE 4.2, which compiled loops need")


def _processor_flags() -> frozenset[str]:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("flags"):
                    return frozenset(line.split(":")[1].split())
    except OSError:
        return _flags_of_llvm()
    return _flags_of_llvm()


def _flags_of_llvm() -> frozenset[str]:
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    return frozenset(name.replace(".", "_") for name, there in features.items() if there)


# --- emitting ------------------------------------------------------------------------------------


def new_machine(target: Target) -> Any:
    """Return a new target machine of llvmlite."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    triple = target.triple or binding.get_process_triple()
    cpu = target.cpu or binding.get_host_cpu_name()
    features = target.features
    if not target.cpu:
        features = binding.get_host_cpu_features().flatten()
    return binding.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="pic", codemodel="small"
    )


def module_text(functions: list[str], declared: set[str], target: Target) -> str:
    """A whole module from the text of its functions."""
    width = ""
    if target.level == "avx512":
        width = ' "prefer-vector-width"="512" "min-legal-vector-width"="512"'
    attributes = f"attributes #0 = {{ nounwind{width} }}"
    return "\n".join([*functions, *sorted(declared), attributes, ""])


def emit(modules: Sequence[tuple[str, list[str]]], target: Target) -> list[Code]:
    """Compile modules to flat images, or to objects where that is not possible.

    Args:
        modules: the LLVM IR of each, and its symbols; several are compiled at the same time.
        target: the processor.
    """
    objects = compile_modules([text for text, _ in modules], partial(new_machine, target))
    flat = sys.platform.startswith("linux") and target.level != "generic"
    codes = []
    for data, (_, symbols) in zip(objects, modules):
        code = link_flat(data, symbols) if flat else None
        codes.append(code or Code("object", data, dict.fromkeys(symbols, 0)))
    return codes


# --- linking -------------------------------------------------------------------------------------


def link_flat(data: bytes, symbols: list[str]) -> Code | None:
    """An x86-64 ELF object as a flat image; None if it has external references."""
    table_at, count, names_at = (
        struct.unpack_from("<Q", data, 0x28)[0],
        *struct.unpack_from("<HH", data, 0x3C),
    )
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table_at + 64 * n) for n in range(count)]
    text = sections[names_at]

    def name(offset: int, strings: Sequence[int]) -> str:
        start = strings[4] + offset
        return data[start : data.index(b"\0", start)].decode()

    image = bytearray()
    starts: dict[int, int] = {}
    for n, section in enumerate(sections):
        allocated = section[2] & 2 and section[1] == 1 and section[5]
        if allocated and name(section[0], text) != ".eh_frame":
            align = max(section[8], 16)
            image += b"\0" * (-len(image) % align)
            starts[n] = len(image)
            image += data[section[4] : section[4] + section[5]]
    symtab = next((s for s in sections if s[1] == 2), None)
    if symtab is None:
        return None
    entries = [
        struct.unpack_from("<IBBHQQ", data, symtab[4] + 24 * n) for n in range(symtab[5] // 24)
    ]
    for section in sections:
        if (
            section[1] == 4
            and section[7] in starts
            and not _relocate(data, section, starts, entries, image)
        ):
            return None
    results: dict[str, int] = {}
    strings = sections[symtab[6]]
    for entry in entries:
        label = name(entry[0], strings)
        if label in symbols and entry[3] in starts:
            results[label] = starts[entry[3]] + entry[4]
    return Code("image", bytes(image), results) if len(results) == len(symbols) else None


def _relocate(
    data: bytes,
    section: tuple[int, ...],
    starts: dict[int, int],
    entries: list[Any],
    image: bytearray,
) -> bool:
    for n in range(section[5] // 24):
        offset, info, addend = struct.unpack_from("<QQq", data, section[4] + 24 * n)
        kind, entry = info & 0xFFFFFFFF, entries[info >> 32]
        if kind not in (_PC32, _PLT32) or entry[3] not in starts:
            return False
        place = starts[section[7]] + offset
        target = starts[entry[3]] + entry[4] + addend
        struct.pack_into("<i", image, place, target - place)
    return True


# --- loading -------------------------------------------------------------------------------------

_loaded: list[Any] = []  # keeps mappings and engines for the lifetime of the process


def load(codes: list[Code]) -> list[dict[str, int]]:
    """Make codes executable; return for each the addresses by symbol."""
    images = [c for c in codes if c.kind == "image"]
    mapped = iter(_map_images(images) if images else [])
    return [next(mapped) if c.kind == "image" else _load_object(c) for c in codes]


def _map_images(images: list[Code]) -> list[dict[str, int]]:
    starts, size = [], 0
    for code in images:
        starts.append(size)
        size += -(-len(code.data) // 64) * 64
    size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    area = mmap.mmap(
        -1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ | mmap.PROT_WRITE
    )
    for start, code in zip(starts, images, strict=True):
        area[start : start + len(code.data)] = code.data
    base = ctypes.addressof(ctypes.c_char.from_buffer(area))
    process = ctypes.CDLL(None, use_errno=True)
    process.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if process.mprotect(base, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "cannot make compiled code executable")
    _loaded.append(area)
    return [
        {symbol: base + start + offset for symbol, offset in code.symbols.items()}
        for start, code in zip(starts, images, strict=True)
    ]


def _load_object(code: Code) -> dict[str, int]:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(reloc="pic")
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(code.data))
    engine.finalize_object()
    _loaded.append(engine)
    return {symbol: engine.get_function_address(symbol) for symbol in code.symbols}
