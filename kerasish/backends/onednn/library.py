"""The C functions of oneDNN 3.x that the engine calls, each checked: `call(name, *arguments)`.

oneDNN's descriptors are opaque, so only addresses, integers and arrays of int64 are passed. Every
status code except success becomes an OneDnnError that names the function, the primitive and its
shapes; "unimplemented" becomes Unsupported, for which there is a fallback.

Source: oneDNN's public C interface, version 3.2 (and its numbers of enumerations up to 3.12).
"""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from collections.abc import Sequence
from typing import Any

from kerasish.backends.onednn import native as native
from kerasish.environment import choice

MAX_DIMENSIONS = 12

DTYPES = {"float16": 1, "bfloat16": 2, "float32": 3, "int32": 4, "int8": 5, "uint8": 6}
ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "int32": 4, "int8": 1, "uint8": 1}

ELTWISE = {
    "relu": 0x20, "tanh": 0x21, "elu": 0x22, "square": 0x23, "abs": 0x24, "sqrt": 0x25,
    "linear": 0x26, "soft_relu": 0x27, "hard_sigmoid": 0x28, "logistic": 0x29, "exp": 0x2A,
    "gelu_tanh": 0x2B, "swish": 0x2C, "log": 0x2D, "clip": 0x2E, "pow": 0x30, "gelu_erf": 0x31,
    "mish": 0x33, "hard_swish": 0x34,
}  # fmt: skip
BINARY = {
    "add": 0x1FFF0, "mul": 0x1FFF1, "max": 0x1FFF2, "min": 0x1FFF3, "div": 0x1FFF4, "sub": 0x1FFF5,
}  # fmt: skip

FORWARD_TRAINING, FORWARD_INFERENCE = 64, 96
CONVOLUTION_DIRECT = 1
POOLING_MAX, POOLING_AVERAGE = 0x1FF, 0x3FF  # an average without the padding

# Queries of primitive descriptors.
QUERY_IMPLEMENTATION, QUERY_STRIDES = 8, 14
QUERY_WORKSPACE, QUERY_SCRATCHPAD, QUERY_ARGUMENT = 135, 136, 255
QUERY_NDIMS, QUERY_DIMS, QUERY_DATA_TYPE, QUERY_PADDED_DIMS = 256, 257, 258, 260
QUERY_FORMAT_KIND, QUERY_BLOCK_COUNT, QUERY_BLOCKS, QUERY_BLOCK_AXES = 262, 263, 264, 265
FORMAT_BLOCKED = 2

ARG_SRC, ARG_DST, ARG_WEIGHTS, ARG_BIAS = 1, 17, 33, 41
ARG_WORKSPACE, ARG_SCRATCHPAD = 64, 80
ARG_DIFF_SRC, ARG_DIFF_DST, ARG_DIFF_WEIGHTS = 129, 145, 161
ARG_SRC_1, ARG_POST_OP = 2, 32768  # operand of post-op i: (i + 1) * ARG_POST_OP | ARG_SRC_1

_STATUS = {
    1: "out of memory",
    2: "invalid arguments",
    3: "unimplemented",
    4: "no further implementation",
    5: "runtime error",
    6: "not required",
}
_UNIMPLEMENTED = (3, 4)

_P, _I, _F = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "engine_create": (_P, _I, ctypes.c_size_t),
    "stream_create": (_P, _P, ctypes.c_uint),
    "memory_desc_create_with_strides": (_P, _I, _P, _I, _P),
    "memory_desc_create_with_tag": (_P, _I, _P, _I, _I),
    "memory_desc_clone": (_P, _P),
    "memory_desc_destroy": (_P,),
    "memory_desc_query": (_P, _I, _P),
    "memory_create": (_P, _P, _P, _P),
    "memory_destroy": (_P,),
    "memory_set_data_handle": (_P, _P),
    "primitive_attr_create": (_P,),
    "primitive_attr_destroy": (_P,),
    "primitive_attr_set_scratchpad_mode": (_P, _I),
    "primitive_attr_set_post_ops": (_P, _P),
    "post_ops_create": (_P,),
    "post_ops_destroy": (_P,),
    "post_ops_append_eltwise": (_P, _I, _F, _F),
    "post_ops_append_sum": (_P, _F, ctypes.c_int32, _I),
    "post_ops_append_binary": (_P, _I, _P),
    "matmul_primitive_desc_create": (_P,) * 7,
    "convolution_forward_primitive_desc_create": (_P, _P, _I, _I) + (_P,) * 9,
    "convolution_backward_data_primitive_desc_create": (_P, _P, _I) + (_P,) * 9,
    "convolution_backward_weights_primitive_desc_create": (_P, _P, _I) + (_P,) * 10,
    "pooling_forward_primitive_desc_create": (_P, _P, _I, _I) + (_P,) * 8,
    "pooling_backward_primitive_desc_create": (_P, _P, _I) + (_P,) * 9,
    "reorder_primitive_desc_create": (_P,) * 6,
    "primitive_desc_query": (_P, _I, _I, _P),
    "primitive_desc_destroy": (_P,),
    "primitive_create": (_P, _P),
    "primitive_destroy": (_P,),
    "primitive_execute": (_P, _P, _I, _P),
}


_BFLOAT16_INSTRUCTIONS = 0x80  # of AVX-512; a bit of oneDNN's numbers of instruction sets


def has_bfloat16() -> bool:
    """Return whether oneDNN multiplies bfloat16 by native instructions (AVX-512 or AMX)."""
    return not native.available() and _has_bfloat16_instructions()


@functools.cache
def _has_bfloat16_instructions() -> bool:
    return bool(instruction_set() & _BFLOAT16_INSTRUCTIONS)


def instruction_set() -> int:
    """Return oneDNN's number of the instructions that it uses."""
    isa = native.library().dnnl_get_effective_cpu_isa
    isa.restype = ctypes.c_int
    return int(isa())


def slow_halves() -> tuple[str, ...]:
    """Return the 16-bit dtypes that are computed in float32, which is faster on this processor.

    `KERASISH_BFLOAT16`, "float32" or "native", overrides the choice for bfloat16. Without oneDNN
    there are no 16-bit products, and both dtypes are always computed in float32.
    """
    wish = choice("KERASISH_BFLOAT16", ("float32", "native"))
    keep = has_bfloat16() if not wish else wish == "native" and not native.available()
    return ("float16",) if keep else ("float16", "bfloat16")


class OneDnnError(RuntimeError):
    """oneDNN reported an error; the message names the primitive, its shapes and the reason."""


class Unsupported(OneDnnError):
    """oneDNN has no implementation on this processor; the caller uses other code."""


@functools.cache
def function_of(name: str) -> Any:
    """Return dnnl_`name`, which returns a status; `call` also checks it."""
    function = getattr(native.library(), f"dnnl_{name}")
    function.argtypes = _SIGNATURES[name]
    function.restype = ctypes.c_int
    return function


def call(name: str, *arguments: Any, about: str = "") -> None:
    """Call dnnl_`name`; `about` describes the object being created, for error messages."""
    check(function_of(name)(*arguments), name, about)


def check(status: int, name: str, about: str) -> None:
    """Raise OneDnnError for a status code other than success."""
    if status:
        kind = Unsupported if status in _UNIMPLEMENTED else OneDnnError
        reason = _STATUS.get(status, f"status {status}")
        raise kind(f"oneDNN: {about or 'a call'}: dnnl_{name} answered {reason!r}.")


def create(name: str, *arguments: Any, about: str = "") -> int:
    """Call dnnl_`name` whose first argument receives a new object, and return the object."""
    result = ctypes.c_void_p()
    call(name, ctypes.byref(result), *arguments, about=about)
    return result.value or 0


def free_with(owner: object, name: str, handle: int) -> None:
    """Free an object by dnnl_`name` when `owner` is freed; not at the interpreter's end, when
    threads may still run and the memory is freed anyway.
    """
    weakref.finalize(owner, destroy, name, handle, os.getpid()).atexit = False


def destroy(name: str, handle: int, process: int) -> None:
    """Free an object in the process that created it: after a fork its locks may stay held."""
    if handle and process == os.getpid():
        function_of(name)(handle)


def sizes(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """Return `values` as the array of 12 int64 that oneDNN calls dims."""
    return (ctypes.c_int64 * MAX_DIMENSIONS)(*values)


@functools.cache
def engine() -> int:
    """Return the process's CPU engine."""
    return create("engine_create", 1, 0)


@functools.cache
def stream() -> int:
    """Return the process's stream; on the CPU it holds no state, threads may share it."""
    return create("stream_create", engine(), 1)


def execute_address() -> int:
    """Return the address of dnnl_primitive_execute."""
    return ctypes.cast(native.library().dnnl_primitive_execute, ctypes.c_void_p).value or 0
