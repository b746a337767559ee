"""Loads a shared library of a wheel under the name that other libraries ask for.

Wheels contain copies of common libraries under names with a hash, to avoid conflicts with other
copies. A library that needs "libgomp.so.1" does not recognize "libgomp-e985bcbb.so.1.0.0" as such.
The copy in memory made here has the expected name (SONAME).

What builds wheels gives the file and the library in it the same new name, so the name is found as
text. Reading the ELF headers instead took 45 more lines and found the same bytes.
"""

from __future__ import annotations

import ctypes
import os


def load_renamed(path: str, name: str) -> ctypes.CDLL:
    """Load the library at `path` as if its name were `name`.

    Raises:
        ValueError: not an ELF library that contains the name of its file once, or that name is
            shorter than `name`.
        OSError: it cannot be read or loaded.
    """
    with open(path, "rb") as file:
        image = file.read()
    own = os.path.basename(path).encode()
    if not image.startswith(b"\x7fELF") or image.count(b"\0" + own + b"\0") != 1:
        raise ValueError(f"{path}: expected an ELF library that contains its file's name once.")
    if len(name) > len(own):
        raise ValueError(f"{path}: its name has {len(own)} letters, {name!r} is longer.")
    image = image.replace(b"\0" + own + b"\0", b"\0" + name.encode().ljust(len(own) + 1, b"\0"))
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(image)
        return ctypes.CDLL(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
