"""NVRTC by ctypes, and what cuobjdump and nvdisasm say of its binaries; none of it needs a GPU.

The wheels are nvidia-cuda-nvrtc (13), nvidia-cuda-nvrtc-cu12 (12.9), nvidia-cuda-cuobjdump and
nvidia-cuda-nvdisasm. Binaries are kept in the folder for temporary files, by what they are made of.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import re
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")
# What CuPy 14 adds to the options of a RawModule.
BY_CUPY = ("-ftz=true", "--device-as-default-execution-space")
WHEELS = {
    0: "nvidia-cuda-nvrtc", 13: "nvidia-cuda-nvrtc", 12: "nvidia-cuda-nvrtc-cu12",
}  # fmt: skip


def _folders() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    return [Path(p) for p in spec.submodule_search_locations or ()] if spec else []


@functools.cache
def _library(major: int) -> tuple[ctypes.CDLL, str] | None:
    name = f"libnvrtc.so.{major or '[0-9]*'}"
    result = sorted((lib for f in _folders() for lib in f.glob(f"*/lib/{name}")), reverse=True)
    if not result:
        return None
    library, numbers = ctypes.CDLL(str(result[0])), (ctypes.c_int(), ctypes.c_int())
    library.nvrtcVersion(*map(ctypes.byref, numbers))
    return library, ".".join(str(n.value) for n in numbers)


def is_installed(major: int = 0) -> bool:
    """Return whether NVRTC of a major version of CUDA is installed; 0: any."""
    return _library(major) is not None


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"cuda-on-cpu-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def compile_text(text: str, options: tuple[str, ...], major: int = 0) -> tuple[bytes, str]:
    """Return (binary, log) of a source, binary empty where NVRTC refuses it.

    The test is skipped where the wheel is missing.
    """
    known = _library(major)
    if known is None:
        pytest.skip(f"NVRTC is not installed: the wheel {WHEELS[major]}")
    library, version = known
    key = hashlib.sha256(repr((text, options, version)).encode()).hexdigest()[:24]
    path = _folder() / f"{key}.cubin"
    if path.exists():
        return path.read_bytes(), ""
    binary, log = _compiled(library, text, options)
    if binary and not log:
        part = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        part.write_bytes(binary)
        os.replace(part, path)
    return binary, log


def _compiled(nvrtc: ctypes.CDLL, text: str, options: tuple[str, ...]) -> tuple[bytes, str]:
    program = ctypes.c_void_p()
    created = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None
    )
    assert created == 0
    given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    result, size = nvrtc.nvrtcCompileProgram(program, len(options), given), ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    binary = b""
    if result == 0:
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(program, buffer)
        binary = buffer.raw
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return binary, log.value.decode()


# --- what a binary holds --------------------------------------------------------------------------


class Facts(NamedTuple):
    """What a kernel's binary needs and does.

    Attributes:
        registers: of each thread.
        stack: bytes of local memory of each thread: spilled registers, arrays indexed at run time.
        shared: bytes of static shared memory of each block.
        loads: bytes of each load of global memory, the widest first.
        stores: likewise.
        divisions: 64-bit divisions in loops. A division of integers of 64 bits is a call of
            a function of about 70 instructions.
    """

    registers: int
    stack: int
    shared: int
    loads: tuple[int, ...]
    stores: tuple[int, ...]
    divisions: int


def _tool(name: str) -> str:
    result = [str(p) for f in _folders() for p in sorted(f.glob(f"*/bin/{name}"))]
    if not result:
        pytest.skip(f"{name} is not installed: the wheel nvidia-cuda-{name}")
    return result[0]


def _run(tool: str, *arguments: str) -> str:
    done = subprocess.run([_tool(tool), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


_USE = re.compile(r"Function (\w+):\n\s*(.*)")
_PART = re.compile(r"^\.text\.(\w+):", re.MULTILINE)
_MOVE = re.compile(r"\b(LDG|STG)\.E((?:\.\w+)*)")
_DIVISION = re.compile(r"\bCALL\.\S+ .*__cuda_sm\d+_(?:div|rem)_[su]64")
_LABEL = re.compile(r"^(\.L_x_\d+):", re.MULTILINE)
_BRANCH = re.compile(r"\bBRA\S* .*?`\((\.L_x_\d+)\)")


def facts_of(binary: bytes) -> dict[str, Facts]:
    """Return the facts of each kernel of a binary, by name."""
    path = (
        _folder()
        / f"{hashlib.sha256(binary).hexdigest()[:24]}.{os.getpid()}.{threading.get_ident()}.cubin"
    )
    path.write_bytes(binary)
    try:
        used = dict(_USE.findall(_run("cuobjdump", "-res-usage", str(path))))
        text = _run("nvdisasm", "-c", str(path))
    finally:
        path.unlink()
    parts = _PART.split(text)
    return {name: _facts(used[name], code) for name, code in zip(parts[1::2], parts[2::2])}


def _facts(used: str, code: str) -> Facts:
    numbers = {k: int(v) for k, v in re.findall(r"(\w+):(\d+)", used)}
    widths: dict[str, list[int]] = {"LDG": [], "STG": []}
    for kind, suffixes in _MOVE.findall(code):
        widths[kind].append(_width(suffixes))
    assert numbers["LOCAL"] == 0
    return Facts(
        numbers["REG"], numbers["STACK"], numbers["SHARED"],
        tuple(sorted(widths["LDG"], reverse=True)), tuple(sorted(widths["STG"], reverse=True)),
        _divisions_in_loops(code),
    )  # fmt: skip


def _divisions_in_loops(code: str) -> int:
    """Return how many 64-bit divisions are between a label and a branch back to it."""
    labels = {m[1]: m.start() for m in _LABEL.finditer(code)}
    loops = [(labels[m[1]], m.start()) for m in _BRANCH.finditer(code)
             if labels.get(m[1], m.start()) < m.start()]  # fmt: skip
    calls = [m.start() for m in _DIVISION.finditer(code)]
    return sum(any(a < c < b for a, b in loops) for c in calls)


def _width(suffixes: str) -> int:
    """Return the bytes of a load or store by its suffixes: .128, .64, .U16, .S8 or none."""
    result = re.search(r"\.(?:U|S)?(256|128|64|16|8)(?=\.|$)", suffixes)
    return int(result[1]) // 8 if result else 4
