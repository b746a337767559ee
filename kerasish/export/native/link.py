"""From LLVM IR to an object file and a shared library."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from kerasish.backends.static.machine.assembly import Target
from kerasish.backends.static.machine.machine_code import host_target
from kerasish.export.native.dispatch import LEVELS

TARGETS = {
    "x86-64-v2": Target("sse", "x86-64-v2", "", "x86_64-unknown-linux-gnu"),
    "x86-64-v3": Target("avx2", "x86-64-v3", "", "x86_64-unknown-linux-gnu"),
    "x86-64-v4": Target("avx512", "x86-64-v4", "", "x86_64-unknown-linux-gnu"),
    "aarch64": Target("generic", "generic", "", "aarch64-unknown-linux-gnu"),
    "wasm32": Target("generic", "generic", "+simd128", "wasm32-unknown-unknown"),
}
_NO_LINKER = "no C compiler or linker for this target was found (cc, gcc, clang, ld)"
_NO_WASM = "wasm-ld and the C library of WASI were not found (Debian: lld, wasi-libc)"
_MACHINES = [("x86_64", "amd64"), ("aarch64", "arm64")]


# What a target's triple ends with on each system; Apple names the processor in its own way.
_SYSTEMS = {
    "linux": "unknown-linux-gnu", "macos": "apple-macosx11.0.0", "windows": "pc-windows-msvc",
}  # fmt: skip
_HERE = {"linux": "linux", "darwin": "macos", "win32": "windows"}


def targets_named(names: str | Sequence[str], system: str | None = None) -> dict[str, Target]:
    """Return name -> processor; several from the oldest to the latest.

    Args:
        names: one or several.
        system: "linux", "macos" or "windows"; None: this one.

    Raises:
        ValueError: there is none of a name, or several that do not go into one file.
    """
    here = _HERE.get(sys.platform, "linux")
    if system not in (None, *_SYSTEMS):
        raise ValueError(f"Model.export: system must be one of {sorted(_SYSTEMS)}, got {system!r}.")
    targets = _processors(names)
    if system not in (None, here) and not targets.keys() <= set(TARGETS) - {"wasm32"}:
        raise ValueError(
            f"Model.export: for another system name the target, one of {sorted(TARGETS)[:-1]}, "
            f"got {names!r}."
        )
    return {name: _of_system(target, system or here) for name, target in targets.items()}


def _of_system(target: Target, system: str) -> Target:
    processor = target.triple.partition("-")[0]
    if not target.triple or processor == "wasm32":
        return target
    if system == "macos" and processor == "aarch64":
        processor = "arm64"
    return target._replace(triple=f"{processor}-{_SYSTEMS[system]}")


def _processors(names: str | Sequence[str]) -> dict[str, Target]:
    listed = [names] if isinstance(names, str) else list(names)
    for name in listed:
        if name != "native" and name not in TARGETS:
            raise ValueError(
                f"Model.export: target must be 'native' or one of {sorted(TARGETS)}, got {name!r}."
            )
    if len(set(listed)) == 1:
        return {listed[0]: host_target() if listed[0] == "native" else TARGETS[listed[0]]}
    if not listed or not set(listed) <= set(LEVELS):
        raise ValueError(
            f"Model.export: several targets in one file must be of {LEVELS}, got {listed}."
        )
    if platform.machine().lower() not in _MACHINES[0]:
        raise ValueError(
            "Model.export: several targets in one file are written on x86-64 machines alone; "
            "export one file for each target."
        )
    return {name: TARGETS[name] for name in LEVELS if name in listed}


def object_of(text: str, target: Target, exports: Sequence[str] = ()) -> bytes:
    """Return the object file of a module, optimized for a processor.

    Functions may name another one in their attributes.

    Args:
        text: the module.
        target: the processor.
        exports: the functions that callers find; a library of Windows has a list of them.
    """
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmparser()  # for CPUID
    triple = target.triple or binding.get_process_triple()
    if "windows" in triple and exports:
        listed = "|".join(map(re.escape, exports))
        text = re.sub(rf"^define (?=\w+ @(?:{listed})\()", "define dllexport ", text, flags=re.M)
    module = binding.parse_assembly(text)
    module.triple = triple
    module.verify()
    cpu, features = target.cpu, target.features
    if not cpu:
        cpu, features = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    machine = binding.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="pic", codemodel="small"
    )
    module.data_layout = str(machine.target_data)
    _optimize(binding, machine, module)
    data: bytes = machine.emit_object(module)
    return data


def _optimize(binding: Any, machine: Any, module: Any) -> None:
    """Run LLVM's passes: argument blocks become numbers in the kernels that are inlined."""
    options = binding.create_pipeline_tuning_options(speed_level=2)
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def system_of(target: Target) -> str:
    """Return the system that a target is for: "linux", "macos", "windows" or "wasm"."""
    here = _HERE.get(sys.platform, "linux")
    words = {"linux": "linux", "apple": "macos", "windows": "windows", "wasm32": "wasm"}
    return next((system for word, system in words.items() if word in target.triple), here)


def runs_here(target: Target) -> bool:
    """Return whether this machine and system can link for a target: the same architecture."""
    if system_of(target) != _HERE.get(sys.platform, "linux"):
        return False
    machine = platform.machine().lower()
    wanted = (target.triple or machine).partition("-")[0]
    return wanted == machine or any({wanted, machine} <= {*names} for names in _MACHINES)


def library_suffix(target: Target | None = None) -> str:
    """Return the suffix of libraries for a target; None: for this machine."""
    system = system_of(target or host_target())
    return {"wasm": ".wasm", "macos": ".dylib", "windows": ".dll"}.get(system, ".so")


def link(object_path: str, library_path: str, target: Target, exports: Sequence[str]) -> str:
    """Link an object file to a shared library; return "", or the reason why that cannot be done.

    Args:
        object_path: the object.
        library_path: where the library is written.
        target: the processor of the object.
        exports: the functions that callers find.

    Raises:
        OSError: the linker failed.
    """
    system = system_of(target)
    command = _wasm_linker(exports) if system == "wasm" else _linker(target)
    if not command:
        if system not in ("linux", "wasm") and system != _HERE.get(sys.platform):
            return "link the object file on that system"
        return _NO_WASM if system == "wasm" else _NO_LINKER
    libraries = {"wasm": ["-lc"], "windows": []}.get(system, ["-lm"])
    full = [*command, "-o", library_path, object_path, *libraries]
    done = subprocess.run(full, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(
            f"Model.export: {os.path.basename(command[0])} failed: {done.stderr.strip()[:500]}"
        )
    return ""


def _linker(target: Target) -> list[str]:
    system = system_of(target)
    if runs_here(target):
        names = ["clang", "gcc"] if system == "windows" else ["cc", "gcc", "clang", "ld"]
    elif system == "linux":
        names = [f"{target.triple.partition('-')[0]}-linux-gnu-gcc"]
    else:
        return []
    for name in names:
        path = shutil.which(name)
        if path is not None:
            # Only these linkers know these options.
            plain = name == "ld" or system != "linux"
            return [path, "-shared", *([] if plain else ["-Wl,--build-id=none", "-Wl,-s"])]
    return []


def _wasm_linker(exports: Sequence[str]) -> list[str]:
    """Return the command that makes a module with a C library inside: it imports nothing."""
    path = shutil.which("wasm-ld")
    folder = os.path.join(os.environ.get("WASI_SYSROOT", "/usr"), "lib", "wasm32-wasi")
    if path is None or not os.path.exists(os.path.join(folder, "libc.a")):
        return []
    # The stack comes first: beyond its end lies no memory.
    stack = ["-z", "stack-size=1048576", "--stack-first"]
    names = [f"--export={name}" for name in (*exports, "malloc", "free")]
    return [path, "--no-entry", "--strip-all", *stack, *names, f"-L{folder}"]
