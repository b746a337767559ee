"""The README of a native library: its files, and how a program takes it in."""

from __future__ import annotations

import os
import re

_ANY = "or load it with whatever a language has for functions of C."
# system -> the command for a program, and how a library is made and used.
_USES = {
    "linux": (
        "cc program.c {base}.o -lm",
        f"""Link with `cc program.c -L. -l:{{base}}.so -Wl,-rpath,.`,
{_ANY}""",
    ),
    "macos": (
        "cc program.c {base}.o",
        f"""On macOS, `cc -shared {{base}}.o -o {{base}}.dylib` makes a library of the object file.
Link with `cc program.c {{base}}.dylib`,
{_ANY}""",
    ),
    "windows": (
        "clang program.c {base}.o",
        f"""On Windows, `clang -shared {{base}}.o -o {{base}}.dll` or `link /DLL {{base}}.o` makes
a library of the object file, and {{base}}.lib. Link with `clang program.c {{base}}.lib`,
{_ANY}""",
    ),
    "wasm": (
        "zig cc -target wasm32-wasi program.c {base}.o -lm",
        """A library is a module without imports; `malloc` and `free` manage its memory:

    const {{ instance }} = await WebAssembly.instantiate(bytes);  // of {base}.wasm
    const {{ memory, malloc, {name}_predict }} = instance.exports;
    const x = malloc(4 * count), y = malloc(4 * results);
    new Float32Array(memory.buffer, x, count).set(numbers);
    const code = {name}_predict(x, y, 1n, 0);  // n is a BigInt; 0: memory of the module
    const found = new Float32Array(memory.buffer, y, results);""",
    ),
}


def readme_of(path: str, system: str, library: str, separate: bool) -> str:
    """Return the text.

    Args:
        path: of the files, without a suffix.
        system: "linux", "macos", "windows" or "wasm".
        library: the line about it.
        separate: whether the weights lie beside it.
    """
    base = os.path.basename(path)
    command, use = (text.format(base=base, name=re.sub(r"\W", "_", base)) for text in _USES[system])
    weights = f"- `{base}.weights`: the weights; read the file into memory aligned to 64 bytes\n"
    return f"""# {base}

The inference of a model as native code. It needs the C library and its functions of libm, nothing
else.

- `{base}.h`: the functions, with shapes and error codes
- {library}
- `{base}.o`: the object file, to link into a program: `{command}`
{weights if separate else ""}
{use}
"""
