"""The user's handle: a tensor, which is an array or a value of a trace; conversions to it.

A tensor that depends on something whose gradient may be requested has a `maker`, the record that
the reverse pass follows.
"""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasish import config, devices, ops
from kerasish.devices import _State as _devices
from kerasish.errors import DTypeError, NumberAskedError, ScalarError, ShapeError, at_user_line
from kerasish.operators import BitOperators, Operators
from kerasish.ops import dtypes
from kerasish.ops.arrays.core import derivatives
from kerasish.ops.op import SymbolicArgument, current_engine
from kerasish.outside import stand_in
from kerasish.overriding import override
from kerasish.typing import AnyTensor, Array, Structure, TensorLike

if TYPE_CHECKING:
    from typing_extensions import Self

_serials = itertools.count()


class TapeRecord:
    """How a tensor was computed: op, inputs, attributes, results; the reverse pass reads it."""

    __slots__ = ("attrs", "inputs", "op", "results", "serial", "__weakref__")

    def __init__(
        self, op: Any, inputs: Sequence[Tensor], attrs: dict[str, Any], results: Sequence[Any]
    ):
        self.op, self.inputs, self.attrs, self.results = op, inputs, attrs, results
        self.serial = next(_serials)


class Key:
    """Identifies a leaf through all its values; refers to its tensor or variable."""

    __slots__ = ("owner",)

    def __init__(self, owner: AnyTensor) -> None:
        self.owner = weakref.ref(owner)


class _Recording(threading.local):
    on = True  # whether makers are kept
    maker: TapeRecord | None = None  # the current record of a reverse pass
    depth = 0  # nesting of derivatives: a reverse pass inside one is recorded


recording = _Recording()


def no_gradient() -> AbstractContextManager[None]:
    """Keep no records inside the `with` block: its ops cannot be differentiated.

    Returns:
        A context manager that yields None.

    Example:
        >>> import kerasish
        >>> v = kerasish.Variable(2.0)
        >>> with no_gradient():
        ...     y = v * 3.0
        >>> float(y)
        6.0
    """
    return override(recording, "on", False)


class Tensor(BitOperators):
    """An n-dimensional array of numbers of one dtype.

    Args:
        value: an array, a nested list of numbers, or a number.
        dtype: the dtype's name; None keeps the array's (Python floats become `floatx()`).
        requires_grad: whether `backward()` stores its derivative in `.grad`.

    Example:
        >>> x = Tensor(3.0, requires_grad=True)
        >>> y = x**2 + x
        >>> y.backward()
        >>> float(x.grad)
        7.0
    """

    __slots__ = (
        "value", "maker", "index", "tracked", "key", "grad", "borrowed", "_keras_mask",
        "dropped_mask", "of_lengths", "__weakref__",
    )  # fmt: skip
    of_lengths: bool  # of a mask: whether it excludes the padding of rows of different lengths

    def __init__(
        self, value: object, dtype: str | None = None, requires_grad: bool = False
    ) -> None:
        result = convert(value, dtype)
        self.value = result.value.copy() if result.borrowed else result.value
        if _devices.accelerated and not is_traced(result):
            self.value = _on_current(result.value)
        self.maker: TapeRecord | None = None
        self.index = 0
        self.key: Any = None
        self.grad: Tensor | None = None
        self._keras_mask = self.dropped_mask = None
        self.borrowed = False
        self.tracked = False
        if requires_grad:
            self.require_grad()

    # --- what it is -------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return self.value.shape

    @property
    def dtype(self) -> str:
        """The dtype's name."""
        dtype = self.value.dtype
        try:
            return dtypes.NAMES[dtype]
        except KeyError:
            return dtypes.name_of(dtype)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.value.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.value.shape)

    @property
    def device(self) -> str:
        """The device of the numbers: "cpu", "gpu:0" and so on."""
        return str(devices.place_of(self.value))

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient may flow to this tensor."""
        return self.tracked

    def require_grad(self) -> Self:
        """Let `backward()` store the derivative by this tensor in its `.grad`; return it."""
        if not dtypes.is_inexact(self.dtype):
            raise DTypeError(f"Only floating tensors have gradients, this one is {self.dtype}.")
        self.tracked = True
        self.key = self.key or Key(self)
        return self

    # --- out to NumPy -----------------------------------------------------------------------

    def numpy(self) -> Array:
        """Return the numbers as a NumPy array, read-only and without a copy if possible."""
        return to_numpy(self)

    def item(self) -> float:
        """Return the single element as a Python number."""
        if self.size != 1:
            raise ScalarError(f"item() needs one element, the shape is {self.shape}.")
        return self.numpy().reshape(()).item()

    def tolist(self) -> Structure:
        """Return the numbers as nested lists."""
        return self.numpy().tolist()

    def __array__(self, dtype: str | None = None, copy: bool | None = None) -> Array:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"A tensor of {self.dtype} cannot be seen as {dtype} uncopied.")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **options: Any) -> Any:
        value = concrete(self)
        if isinstance(value, np.generic):
            value = np.asarray(value)
        if isinstance(value, np.ndarray) or value.nbytes <= devices.MOST_CREATED:
            value = devices.copied(value)  # the caller may write to it: a GPU's may be a constant
        return value.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        value = concrete(self)
        return np.asarray(value).__dlpack_device__() if isinstance(value, np.generic) else (
            value.__dlpack_device__()
        )  # fmt: skip

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        if is_traced(self) and dtypes.is_float(self.dtype):
            return int(ops.trunc(self).item())  # a trace depends on no more than necessary
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if not dtypes.is_integer(self.dtype):
            raise TypeError(f"Only integer tensors can be an index, this one is {self.dtype}.")
        return int(self.item())

    def __bool__(self) -> bool:
        if is_traced(self) and self.dtype != "bool":
            return bool(ops.cast(self, "bool").item())
        return bool(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("A tensor without axes has no length.")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        for i in range(len(self)):
            yield self[i]

    def __repr__(self) -> str:
        if is_traced(self):
            return f"<Tensor {self.dtype}{list(self.shape)} of a trace>"
        text = np.array2string(self.numpy(), separator=", ", prefix="Tensor(")
        return f"Tensor({text}, shape={self.shape}, dtype={self.dtype})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else repr(self)

    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return Tensor, (np.array(self.numpy()),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return Tensor(np.array(self.numpy()))

    def to(self, device: str) -> Tensor:
        """Return this tensor on `device`: "cpu", "gpu" or "gpu:1".

        Raises:
            ValueError: no device has such a name.
            DeviceError: the device cannot be used; the message says why.
        """
        wanted = devices.parse(device)
        return wrap(devices.place(concrete(self), wanted))

    # --- derivatives ------------------------------------------------------------------------

    def backward(self, gradient: TensorLike | None = None, create_graph: bool = False) -> None:
        """Add the derivatives of this tensor to the `.grad` of all it depends on.

        Args:
            gradient: the incoming derivative of this tensor; may be omitted (1) for a
                tensor of one element.
            create_graph: record the reverse pass, so that `.grad` can be differentiated.
        """
        derivatives["backward"](self, gradient, create_graph)

    def detach(self) -> Tensor:
        """Return the same numbers without the connection to what they depend on."""
        return wrap(self.value)


def wrap(value: Any) -> Tensor:
    """Return a tensor of a value that needs no conversion (an array, or a value of a trace)."""
    t = Tensor.__new__(Tensor)
    t.value = value
    # Each layer reads masks: an attribute without a value takes ten times as long.
    t.maker = t.key = t.grad = t._keras_mask = t.dropped_mask = None
    t.index = 0
    t.tracked = t.borrowed = False
    return t


def is_traced(x: Tensor) -> bool:
    """Return whether x is a value of a trace: it has a shape and a dtype but no numbers yet."""
    return type(x.value.dtype) is str


def concrete(x: Tensor) -> Array:
    """Return x's array.

    Raises:
        NumberAskedError: x belongs to a trace that does not know its numbers.
    """
    value = x.value
    if type(value.dtype) is str:
        numbers = current_engine().numbers_of(x)
        if numbers is not None:
            return numbers
        raise NumberAskedError(
            f"A traced tensor of shape {x.shape} has no numbers yet: Python asked for its value"
            f"{at_user_line()} (bool(), float(), if, while, np.asarray, .numpy()). Use ops.cond, "
            "ops.where, ops.while_loop or ops.scan, or compile the model with run_eagerly=True."
        )
    return value


def to_numpy(x: TensorLike) -> Array:
    """Return `x` (a tensor, a variable or an argument of NumPy) as a NumPy array."""
    if isinstance(x, Holder):
        x = x.value
    if not isinstance(x, Tensor):
        return np.asarray(x)
    value = concrete(x)
    if type(value) is np.ndarray:
        if value.flags.writeable:
            value = value.view()
            value.flags.writeable = False
        return value
    return value.get() if hasattr(value, "get") else np.asarray(value)


class Holder(Operators):
    """Something that holds a tensor as its `value`: a variable."""

    value: Any


# --- from Python and NumPy -------------------------------------------------------------------


_SCALARS = (bool, int, float, complex)
_REALS = (int, float)
_FLOATS = {np.dtype(n) for n in ("float16", "float32", "float64")} | {*dtypes.FLOATS}
_constants: dict[Any, Any] = {}


def scalar(value: complex, dtype: str) -> Tensor:
    """Return a tensor without axes; arrays of frequent numbers are cached."""
    key = (value, type(value), dtype, str(value) if value == 0 else None)
    array = _constants.get(key)
    if array is None:
        if dtypes.is_integer(dtype) and isinstance(value, float) and value != int(value):
            raise DTypeError(f"The number {value} does not fit into {dtype}.")
        with np.errstate(over="ignore"):
            array = np.asarray(value).astype(dtypes.array_dtype(dtype))
        array.flags.writeable = False
        if len(_constants) > 2000:
            _constants.clear()
        _constants[key] = array
    return wrap(array)


def convert(x: Structure, dtype: str | None = None) -> Tensor:
    """Return `x` (tensor, variable, array, list, number) as a tensor, copied only if it must be.

    If it shares memory with an array that others may write to, it is marked as `borrowed`: whatever
    keeps it (a record, a result that is a view) copies it first.
    """
    name = None if dtype is None else dtypes.name_of(dtype)
    if isinstance(x, Holder):
        x = x.value
    if isinstance(x, Tensor):
        return x if name is None or x.dtype == name else ops.cast(x, name)
    if type(x) in _SCALARS:
        if name is None:
            name = _scalar_dtype(x)
        return scalar(x, name)
    if hasattr(type(x), "__kerasish_function__"):
        raise SymbolicArgument(x)
    return _convert_array(x, name)


def _scalar_dtype(x: complex) -> str:
    if type(x) is bool:
        return "bool"
    if type(x) is int:
        return "int32" if -(2**31) <= x < 2**31 else "int64"
    return config.floatx() if type(x) is float else "complex64"


def _hint(x: Structure, array: Array) -> str:
    """Return a hint how to convert an array without numbers to numbers; "" if there is none."""
    if hasattr(x, "todense"):
        return ". Make it dense: x.todense()."
    if array.dtype.kind in "US" or array.size and isinstance(array.flat[0], (str, bytes)):
        return (
            ". Convert text to numbers first, by layers.TextVectorization or layers.StringLookup, "
            "and numbers written as text by x.astype('float32')."
        )
    return ""


def _convert_array(x: Structure, name: str | None) -> Tensor:
    borrowed = False
    if isinstance(x, (list, tuple)):
        array, name = _convert_list(x, name)
        if isinstance(array, Tensor):
            return array if name is None else convert(array, name)
    elif isinstance(x, np.generic):
        array = x
    elif isinstance(x, np.ndarray):
        array, borrowed = x, _may_change(x)
    elif devices.lies_on_gpu(x):
        array = devices.adopt(x)
    elif (symbol := stand_in(x)) is not None:
        raise SymbolicArgument(symbol)
    elif hasattr(x, "__array__"):
        array = np.asarray(x)
        borrowed = _may_change(array)
    elif hasattr(x, "__dlpack__"):
        array, borrowed = np.from_dlpack(x), True
    else:
        array = np.asarray(x)
    if array.dtype.kind in "OUSV" and "bfloat16" not in str(array.dtype):
        shown = " ".join(str(x)[:60].split())  # on one line
        raise DTypeError(
            f"Expected numbers, got {type(x).__name__} with dtype {array.dtype}: {shown}"
            f"{_hint(x, array)}"
        )
    if name is not None and array.dtype != dtypes.array_dtype(name):
        array, borrowed = array.astype(dtypes.array_dtype(name)), False
    dtypes.name_of(array.dtype)
    if _devices.accelerated and array.nbytes > devices.SMALL:
        # Smaller ones are copied to the device by its engine, which caches such constants.
        moved = _on_current(array)
        array, borrowed = moved, borrowed and moved is array
    result = wrap(array)
    result.borrowed = borrowed
    return result


def _may_change(array: Array) -> bool:
    """Return whether the memory of `array` is writable: through it, or through its base."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    return array is not None


def _on_current(array: Array) -> Array:
    """Return a NumPy array on the current device; an array on a GPU stays there."""
    wanted = devices.current()
    lies_here = devices.place_of(array).kind != "cpu" or wanted.kind == "cpu"
    return array if lies_here else devices.place(array, wanted)


def _convert_list(x: Sequence[Any], name: str | None) -> tuple[Any, str | None]:
    leaves = _leaves(x)
    for leaf in leaves:
        symbol = leaf if hasattr(type(leaf), "__kerasish_function__") else stand_in(leaf)
        if symbol is not None:
            raise SymbolicArgument(symbol)
    if any(isinstance(leaf, (Tensor, Holder)) for leaf in leaves):
        return ops.stack([convert(part, name) for part in x]), name
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ShapeError(f"Lists of unequal length cannot become a tensor: {error}") from None
    if name is None and not any(hasattr(leaf, "dtype") for leaf in leaves):
        # Python numbers: the default float, 32-bit integers.
        if array.dtype.kind == "f":
            name = config.floatx()
        elif array.dtype == np.int64 and (not array.size or abs(array).max() < 2**31):
            name = "int32"
    return array, name


def _leaves(x: str | Tensor | float | Sequence[Any]) -> list[Any]:
    if isinstance(x, (list, tuple)):
        return [leaf for part in x for leaf in _leaves(part)]
    return [x]
