"""What the numbers were measured on: CPU, cores, memory, versions, load."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

_DISTRIBUTIONS = (
    "kerasish", "numpy", "scipy", "llvmlite", "onednn-cpu-gomp", "keras", "jax", "jaxlib",
    "tensorflow", "tensorflow-cpu", "torch", "onnxruntime",
)  # fmt: skip
_INSTRUCTIONS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


def describe_machine() -> dict[str, Any]:
    """CPU, usable cores, instruction sets, memory (GiB), system, Python and load average."""
    facts = _read_cpu()
    return {
        "cpu": facts.get("model name", platform.processor() or platform.machine()),
        "cores": usable_cores(),
        "instructions": [name for name in _INSTRUCTIONS if name in facts.get("flags", "").split()],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": [round(value, 2) for value in os.getloadavg()],
    }


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def find_versions() -> dict[str, str]:
    """Versions of the installed distributions that matter, by name."""
    versions = {}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def peak_memory() -> int:
    """Largest resident size of this process so far, bytes.

    Read from VmHWM: `ru_maxrss` would also remember the size of the parent at the fork.
    """
    return _read_status("VmHWM")


def resident_memory() -> int:
    """Resident size of this process now, bytes."""
    return _read_status("VmRSS")


def count_gpus() -> int:
    """CUDA devices that the driver offers; 0 where there is no driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def _read_cpu() -> dict[str, str]:
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first = path.read_text().split("\n\n")[0].splitlines()
    pairs = (line.split(":", 1) for line in first if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _read_status(field: str) -> int:
    path = Path("/proc/self/status")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
