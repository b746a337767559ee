"""Writes a model as a native library: header, library (or object file), weights, README."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from kerasish.backends.static.lowering.standalone_units import Repeat
from kerasish.backends.static.machine.assembly import Target
from kerasish.callbacks.message import say
from kerasish.engine.model.model import Model
from kerasish.export.native.emit import MESSAGES, Emitter
from kerasish.export.native.link import (
    library_suffix,
    link,
    object_of,
    system_of,
    targets_named,
)
from kerasish.export.native.plan import BatchPlan, Weights, check_rows, make_plan
from kerasish.export.native.readme import readme_of
from kerasish.export.onnx.save import inference_of, input_names_of
from kerasish.saving.files.atomic import replacing
from kerasish.saving.formats.weights import file_path
from kerasish.typing import PathLike, Structure

_TYPES = {
    "float32": "float", "float64": "double", "int8": "int8_t", "int16": "int16_t",
    "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t", "uint16": "uint16_t",
    "uint32": "uint32_t", "uint64": "uint64_t", "bool": "uint8_t",
}  # fmt: skip
_BATCHES = (32, 8)  # examples that are computed together, where their memory is at most:
_MOST_ARENA = 2**22  # bytes
_FEW = 4  # examples that are computed together, too, where reading weights takes most of the time
_MANY_WEIGHTS = 64  # bytes of weights per byte of an example's memory, where that is so
_FUNCTIONS = ("predict", "arena_size", "weights_size", "target", "message")


def export_native(
    model: Model,
    filepath: PathLike,
    verbose: bool | None = None,
    input_signature: Structure = None,
    target: str | Sequence[str] = "native",
    weights: str = "inside",
    system: str | None = None,
) -> None:
    """Write a model's inference as a library for C and whatever calls C.

    Args:
        model: a built model whose sizes other than the number of examples are known.
        filepath: the files' path without a suffix: "model" gives model.h, model.so, model.o,
            model.README.md, and model.weights where they lie beside. Its name is the prefix of the
            functions.
        verbose: False prints nothing; None: prints the files.
        input_signature: a list with an `InputSpec` for each argument; None: the model's inputs.
        target: "native", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64" or "wasm32" (an object
            file with SIMD instructions); a list of the x86-64 levels puts code for each into one
            file, and the first call chooses.
        weights: "inside" the library, or "beside": a file that the caller reads.
        system: "linux", "macos" or "windows", with a `target`; None: this one. For another one the
            object file is written, and the README has the command that links it there.

    Raises:
        ValueError: an op has no code that needs no library, or depends on other examples of a batch
            (the message names the layer), a size is open, or an option is not known.
        OSError: a file could not be written, or the linker failed.

    Example:
        >>> import kerasish
        >>> model = kerasish.Sequential([kerasish.Input((4,)), kerasish.layers.Dense(1)])
        >>> export_native(model, "scores")  # doctest: +SKIP
    """
    path = file_path(filepath)
    name = re.sub(r"\W", "_", os.path.basename(path))
    if not name or not (name[0].isalpha() or name[0] == "_"):
        raise ValueError(f"Model.export: a file name that is a name in C is needed, got {path!r}.")
    if weights not in ("inside", "beside"):
        raise ValueError(f"Model.export: weights is 'inside' or 'beside', got {weights!r}.")
    targets = targets_named(target, system)
    processor = next(iter(targets.values()))
    f, signature = inference_of(model, input_signature)
    stored = Weights()
    try:
        plans = _plans(f, signature, stored)
    except ValueError as error:
        raise type(error)(f"Model.export: {model.name!r}: {error}") from error
    content = stored.content()
    inside = content if weights == "inside" else None
    text = Emitter(name, plans, targets, inside, len(content)).module()
    exports = [f"{name}_{f}" for f in _FUNCTIONS]
    code = object_of(text, processor, exports)
    outputs = _output_names(model, plans[-1])
    header = _header(name, plans, input_names_of(model, signature), outputs, inside is None)
    missing = _write(path, exports, code, header, content if inside is None else None, processor)
    if verbose is None or verbose:
        written = f"{path}.o ({missing})" if missing else f"{path}{library_suffix(processor)}"
        say(f"Saved {written!r} and {path + '.h'!r}: native code for {', '.join(targets)}.")


def _plans(f: Callable[..., Any], signature: Sequence[Any], stored: Weights) -> list[BatchPlan]:
    """Return plans for several examples at once, as memory allows, and for one."""
    one = make_plan(f, signature, 1, stored)
    check_rows(f, signature)
    recurrent = any(isinstance(step, Repeat) for step in one.steps)
    few = recurrent or stored.size >= _MANY_WEIGHTS * one.arena
    sizes = [next((n for n in _BATCHES if one.arena * n <= _MOST_ARENA), 1), _FEW if few else 1]
    return [*(make_plan(f, signature, n, stored) for n in sizes if n > 1), one]


def _output_names(model: Model, plan: BatchPlan) -> list[str]:
    names = list(model.output_names)[: len(plan.outputs.offsets)]
    return names + [f"output_{i}" for i in range(len(names), len(plan.outputs.offsets))]


def _write(
    path: str,
    exports: list[str],
    code: bytes,
    header: str,
    weights: bytes | None,
    processor: Target,
) -> str:
    """Write all files; return why there is no library, or ""."""
    folder = os.path.dirname(os.path.abspath(path))
    suffix = library_suffix(processor)
    contents = {".o": code, ".h": header.encode()}
    if weights is not None:
        contents[".weights"] = weights
    with tempfile.TemporaryDirectory(dir=folder) as staging:
        source, library = (os.path.join(staging, f"new{end}") for end in (".o", suffix))
        with open(source, "wb") as file:
            file.write(code)
        missing = link(source, library, processor, exports)
        library_name = f"{os.path.basename(path)}{suffix}"
        line = f"no library: {missing}" if missing else f"`{library_name}`: the library"
        readme = readme_of(path, system_of(processor), line, weights is not None)
        contents[".README.md"] = readme.encode()
        for end, content in contents.items():
            with open(os.path.join(staging, f"new{end}"), "wb") as file:
                file.write(content)
        for end in (*contents, *([] if missing else [suffix])):
            with replacing(f"{path}{end}") as new:
                os.replace(os.path.join(staging, f"new{end}"), new)
    return missing


def _header(
    name: str, plans: list[BatchPlan], inputs: list[str], outputs: list[str], separate: bool
) -> str:
    plan = plans[-1]
    arguments = ["const void *weights"] if separate else []
    notes = []
    for names, ports, constant in ((inputs, plan.inputs, True), (outputs, plan.outputs, False)):
        for i, (label, shape, dtype) in enumerate(zip(names, ports.shapes, ports.dtypes)):
            if dtype not in _TYPES:
                raise ValueError(f"Model.export: C has no type for {label!r} of {dtype}.")
            own = re.sub(r"\W", "_", label) or f"port{i}"
            own = f"{own}_" if own in ("n", "arena", "weights") or own[0].isdigit() else own
            const = "const " if constant else ""
            arguments.append(f"{const}{_TYPES[dtype]} *{own}")
            sizes = " x ".join(["n", *map(str, shape)])
            notes.append(f" *   {'in ' if constant else 'out'} {own}: {sizes}, {_TYPES[dtype]}")
    seen: dict[str, int] = {}
    for i, argument in enumerate(arguments):
        last = argument.rpartition("*")[2]
        seen[last] = seen.get(last, 0) + 1
        if seen[last] > 1:
            arguments[i] = f"{argument}_{seen[last]}"
    guard = f"{name.upper()}_H"
    codes = "\n".join(f" *   {code}: {text}" for code, text in MESSAGES.items())
    listed = ",\n    ".join([*arguments, "int64_t n", "void *arena"])
    given = (
        " *   weights: the content of the file .weights, aligned to 64 bytes\n" if separate else ""
    )
    return f"""/* Inference of a model, written by kerasish. */
#ifndef {guard}
#define {guard}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* Compute the outputs of n examples; return 0, or the code of an error.
 *
 * Arrays are in C order.
{given}{chr(10).join(notes)}
 *   arena: {name}_arena_size() bytes, aligned to 64, for this call alone; NULL: memory of the
 *          calling thread, which the library holds
 *
 * Any number of threads may call it at the same time, each with an arena of its own or NULL. It
 * allocates nothing.
 *
 * Codes:
{codes}
 */
int {name}_predict(
    {listed});

/* Return the bytes of memory that a call needs. */
int64_t {name}_arena_size(void);

/* Return the bytes of the weights. */
int64_t {name}_weights_size(void);

/* Return the processor whose code runs here: a target of the export, or "none". */
const char *{name}_target(void);

/* Return the text of an error's code. */
const char *{name}_message(int code);

#ifdef __cplusplus
}}
#endif

#endif
"""
