"""Names of dtypes and their promotion (the lattice of JAX, as Keras follows it).

Python numbers are weak: they take the other operand's dtype where its kind can hold them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kerasish import config
from kerasish.errors import DTypeError, UnknownNameError
from kerasish.typing import DTypeLike

FLOATS = ("bfloat16", "float16", "float32", "float64")
INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
COMPLEXES = ("complex64", "complex128")
ALL = ("bool", *INTEGERS, *FLOATS, *COMPLEXES, "string")

# Weak kinds: what a Python int, float or complex is before it meets an array.
WEAK_INT, WEAK_FLOAT, WEAK_COMPLEX = "int", "float", "complex"

_ABOVE = {
    "bool": ("int",),
    "int": ("uint8", "int8"),
    "uint8": ("int16", "uint16"),
    "uint16": ("int32", "uint32"),
    "uint32": ("int64", "uint64"),
    "uint64": ("float",),
    "int8": ("int16",),
    "int16": ("int32",),
    "int32": ("int64",),
    "int64": ("float",),
    "float": ("bfloat16", "float16", "complex"),
    "bfloat16": ("float32",),
    "float16": ("float32",),
    "float32": ("float64", "complex64"),
    "float64": ("complex128",),
    "complex": ("complex64",),
    "complex64": ("complex128",),
    "complex128": (),
}

NAMES: dict[Any, str] = {}  # of dtypes met before: what `name_of` returns


def name_of(dtype: DTypeLike | None) -> str:
    """Return the name of a dtype given as a name, a NumPy dtype, a Python type or an alike object.

    Example:
        >>> import numpy as np
        >>> name_of(np.float32), name_of("int"), name_of(bool)
        ('float32', 'int32', 'bool')
    """
    try:
        return NAMES[dtype]
    except (KeyError, TypeError):
        return _learn(dtype)


def _learn(dtype: DTypeLike | None) -> str:
    name = _find(dtype)
    if dtype is None or dtype is float or (isinstance(dtype, str) and dtype == "float"):
        return name  # the default float, which may change
    try:
        NAMES[dtype] = name
    except TypeError:
        return name
    return name


def _find(dtype: DTypeLike | None) -> str:
    if dtype is None:
        return config.floatx()
    if isinstance(dtype, str):
        name = {"int": "int32", "half": "float16", "double": "float64"}.get(dtype, dtype)
        if name == "float":
            return config.floatx()
    elif dtype is float:
        return config.floatx()
    elif dtype is int:
        name = "int32"
    elif hasattr(dtype, "name") and isinstance(dtype.name, str):
        name = dtype.name
    elif isinstance(dtype, type) and issubclass(dtype, (bool, np.generic)):
        name = np.dtype(dtype).name
    else:
        name = str(dtype).rsplit(".", 1)[-1].strip("'<> ")
    if name.startswith("str") or name in ("object", "object_"):
        name = "string"
    if name not in ALL:
        try:
            name = np.dtype(dtype).name
        except TypeError:
            raise UnknownNameError.of("dtype", dtype, ALL) from None
        if name not in ALL:
            raise UnknownNameError.of("dtype", name, ALL)
    return name


@functools.cache
def array_dtype(name: str) -> Any:
    """Return NumPy's dtype object for a name ("bfloat16" through ml_dtypes)."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    if name == "string":
        return np.dtype(object)
    return np.dtype(name)


def adding_dtype(name: str) -> Any:
    """Return NumPy's dtype in which numbers of a dtype are added up: float32 for both halves.

    In bfloat16 itself 256 + 1 is 256.
    """
    return array_dtype("float32" if name in ("bfloat16", "float16") else name)


def is_float(name: str) -> bool:
    """Return whether `name` is a floating dtype."""
    return name in FLOATS


def is_integer(name: str) -> bool:
    """Return whether `name` is a signed or unsigned integer dtype (bool is not)."""
    return name in INTEGERS


def is_inexact(name: str) -> bool:
    """Return whether `name` is floating or complex."""
    return name in FLOATS or name in COMPLEXES


@functools.cache
def _uppers(name: str) -> frozenset[str]:
    result = {name}
    for above in _ABOVE[name]:
        result |= _uppers(above)
    return frozenset(result)


@functools.lru_cache(maxsize=4096)
def _join(names: frozenset[str]) -> str:
    if len(names) == 1:
        return next(iter(names))
    unknown = [n for n in names if n not in _ABOVE]
    if unknown:
        raise DTypeError(f"No arithmetic on dtype {unknown[0]!r}.")
    common = frozenset.intersection(*(_uppers(n) for n in names))
    least = [n for n in common if common <= _uppers(n)]
    if not least:
        raise DTypeError(f"The dtypes {sorted(names)} have no common dtype.")
    return least[0]


def result_type(*dtypes: Any) -> str:
    """Return the dtype in which values of the given dtypes meet.

    The Python types int, float (and "int", "float" as weak kinds in `join_kinds`) are weak.

    Example:
        >>> result_type("int32", float), result_type("float16", float), result_type("int8", "uint8")
        ('float32', 'float16', 'int16')
    """
    return join_kinds([_kind(d) for d in dtypes])


def _kind(dtype: DTypeLike) -> str:
    if dtype is int:
        return WEAK_INT
    if dtype is float:
        return WEAK_FLOAT
    if dtype is complex:
        return WEAK_COMPLEX
    return name_of(dtype)


def join_kinds(kinds: list[str]) -> str:
    """Return the common dtype of dtype names and weak kinds."""
    joined = _join(frozenset(kinds)) if kinds else WEAK_FLOAT
    if joined == WEAK_INT:
        return "int32"
    if joined == WEAK_FLOAT:
        return config.floatx()
    if joined == WEAK_COMPLEX:
        return "complex128" if config.floatx() == "float64" else "complex64"
    return joined


def to_inexact(name: str) -> str:
    """Return `name` if it is floating or complex, else the default float."""
    return name if name in FLOATS or name in COMPLEXES else config.floatx()


@functools.cache
def limits(name: str) -> tuple[Any, Any] | None:
    """Return the least and the largest finite number of a dtype; None for complex ones."""
    if name == "bool":
        return 0, 1
    if is_integer(name):
        info = np.iinfo(name)
        return int(info.min), int(info.max)
    if not is_float(name):
        return None
    if name == "bfloat16":
        top = (2 - 2.0**-7) * 2.0**127
    else:
        top = float(np.finfo(name).max)
    return -top, top


@functools.cache
def normal_range(name: str) -> tuple[float, float]:
    """Return the least and the largest positive normal number of a float dtype.

    Example:
        >>> normal_range("float16")
        (6.103515625e-05, 65504.0)
    """
    if name == "bfloat16":
        return 2.0**-126, (2 - 2.0**-7) * 2.0**127
    info = np.finfo(name)
    return float(info.tiny), float(info.max)


def limits_within(name: str, of: str) -> tuple[Any, Any]:
    """Return the limits of the integer dtype `name` as numbers of the float dtype `of`.

    Example:
        >>> limits_within("int32", "float32")
        (-2147483648.0, 2147483520.0)
    """
    low, high = limits(name) or (0, 0)
    kind = array_dtype(of)
    top = np.asarray(high).astype(kind)
    if float(top) > high:
        top = np.nextafter(top, np.zeros((), kind))
    return float(low), float(top)
