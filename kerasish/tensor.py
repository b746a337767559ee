"""The user's handle: a tensor (an array, or a value of a trace) and a variable.

Operators call ops; ops call the engine in charge. A tensor that depends on something whose
gradient may be asked for carries its `maker`, the record that the reverse pass walks.
"""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kerasish import config, ops
from kerasish.errors import DTypeError, ShapeError, TraceError
from kerasish.ops import dtypes
from kerasish.ops.op import Op, SymbolicArgument, using_engine

_serials = itertools.count()


class Record:
    """How a tensor was made: op, inputs, attributes, results; the reverse pass reads it."""

    __slots__ = ("attrs", "inputs", "op", "results", "serial", "locks", "__weakref__")

    def __init__(self, op: Any, inputs: Sequence[Tensor], attrs: dict[str, Any], results: Any):
        self.op, self.inputs, self.attrs, self.results = op, inputs, attrs, results
        self.serial = next(_serials)
        self.locks: Any = None


class Key:
    """Names a leaf through all its values; knows the tensor or variable that it belongs to."""

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner = weakref.ref(owner)


class _Recording(threading.local):
    on = True  # whether makers are kept
    depth = 0  # how many derivatives are being taken: a reverse pass inside one is recorded


recording = _Recording()


@contextmanager
def no_gradient() -> Iterator[None]:
    """Keep no records inside the `with` block: nothing there can be differentiated."""
    before, recording.on = recording.on, False
    try:
        yield
    finally:
        recording.on = before


class Operators:
    """Python's and NumPy's operators, each calling the op of its name."""

    __slots__ = ()
    __array_priority__ = 1000.0
    __hash__ = object.__hash__
    dtype: Any
    shape: Any

    def __add__(self, other: Any) -> Any:
        return ops.add(self, other)

    def __radd__(self, other: Any) -> Any:
        return ops.add(other, self)

    def __sub__(self, other: Any) -> Any:
        return ops.subtract(self, other)

    def __rsub__(self, other: Any) -> Any:
        return ops.subtract(other, self)

    def __mul__(self, other: Any) -> Any:
        return ops.multiply(self, other)

    def __rmul__(self, other: Any) -> Any:
        return ops.multiply(other, self)

    def __truediv__(self, other: Any) -> Any:
        return ops.divide(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return ops.divide(other, self)

    def __floordiv__(self, other: Any) -> Any:
        return ops.floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return ops.floor_divide(other, self)

    def __mod__(self, other: Any) -> Any:
        return ops.mod(self, other)

    def __rmod__(self, other: Any) -> Any:
        return ops.mod(other, self)

    def __pow__(self, other: Any) -> Any:
        return ops.power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return ops.power(other, self)

    def __matmul__(self, other: Any) -> Any:
        return ops.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return ops.matmul(other, self)

    def __neg__(self) -> Any:
        return ops.negative(self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return ops.absolute(self)

    def __invert__(self) -> Any:
        return ops.logical_not(self) if self.dtype == "bool" else ops.bitwise_not(self)

    def __and__(self, other: Any) -> Any:
        return (ops.logical_and if self.dtype == "bool" else ops.bitwise_and)(self, other)

    def __rand__(self, other: Any) -> Any:
        return self.__and__(other)

    def __or__(self, other: Any) -> Any:
        return (ops.logical_or if self.dtype == "bool" else ops.bitwise_or)(self, other)

    def __ror__(self, other: Any) -> Any:
        return self.__or__(other)

    def __xor__(self, other: Any) -> Any:
        return (ops.logical_xor if self.dtype == "bool" else ops.bitwise_xor)(self, other)

    def __rxor__(self, other: Any) -> Any:
        return self.__xor__(other)

    def __lshift__(self, other: Any) -> Any:
        return ops.left_shift(self, other)

    def __rshift__(self, other: Any) -> Any:
        return ops.right_shift(self, other)

    def __eq__(self, other: Any) -> Any:
        return False if other is None else ops.equal(self, other)

    def __ne__(self, other: Any) -> Any:
        return True if other is None else ops.not_equal(self, other)

    def __lt__(self, other: Any) -> Any:
        return ops.less(self, other)

    def __le__(self, other: Any) -> Any:
        return ops.less_equal(self, other)

    def __gt__(self, other: Any) -> Any:
        return ops.greater(self, other)

    def __ge__(self, other: Any) -> Any:
        return ops.greater_equal(self, other)

    def __getitem__(self, key: Any) -> Any:
        return ops.get_item(self, key)

    def __round__(self, decimals: int | None = None) -> Any:
        return ops.round(self, decimals or 0)

    @property
    def T(self) -> Any:  # noqa: N802 (NumPy's name)
        """The tensor with its axes reversed."""
        return ops.transpose(self)

    def reshape(self, *shape: Any) -> Any:
        """Return the elements in another shape."""
        return ops.reshape(self, shape[0] if len(shape) == 1 else shape)

    def astype(self, dtype: Any) -> Any:
        """Return the elements as `dtype`."""
        return ops.cast(self, dtype)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Return the sum over `axis`."""
        return ops.sum(self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Return the mean over `axis`."""
        return ops.mean(self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Return the largest element over `axis`."""
        return ops.max(self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Return the smallest element over `axis`."""
        return ops.min(self, axis, keepdims)


class Tensor(Operators):
    """An n-dimensional array of numbers of one dtype.

    Args:
        value: an array, a nested list of numbers, or a number.
        dtype: the dtype's name; None keeps the array's (Python floats become `floatx()`).
        requires_grad: whether `backward()` leaves its derivative in `.grad`.

    Example:
        >>> x = Tensor(3.0, requires_grad=True)
        >>> y = x**2 + x
        >>> y.backward()
        >>> float(x.grad)
        7.0
    """

    __slots__ = (
        "value", "maker", "index", "tracked", "key", "grad", "source", "_keras_mask", "__weakref__",
    )  # fmt: skip
    def __init__(self, value: Any, dtype: str | None = None, requires_grad: bool = False) -> None:
        made = convert(value, dtype)
        self.value = made.value
        self.maker: Record | None = None
        self.index = 0
        self.key: Any = None
        self.grad: Tensor | None = None
        self.source = made.source
        self.tracked = False
        if requires_grad:
            self.require_grad()

    # --- what it is -------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return self.value.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> str:
        """The dtype's name."""
        dtype = self.value.dtype
        return dtype if type(dtype) is str else dtypes.name_of(dtype)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.value.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for s in self.value.shape:
            count *= s
        return count

    @property
    def device(self) -> str:
        """Where the numbers lie: "cpu" or "gpu:0" and so on."""
        device = getattr(self.value, "device", None)
        number = getattr(device, "id", None)
        return "cpu" if number is None else f"gpu:{number}"

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient may flow to this tensor."""
        return self.tracked

    def require_grad(self) -> Tensor:
        """Let `backward()` leave the derivative by this tensor in its `.grad`; return it."""
        if not dtypes.is_inexact(self.dtype):
            raise DTypeError(f"Only floating tensors have gradients, this one is {self.dtype}.")
        self.tracked = True
        self.key = self.key or Key(self)
        return self

    # --- out to NumPy -----------------------------------------------------------------------

    def numpy(self) -> Any:
        """Return the numbers as a NumPy array, read-only and without a copy where it can be."""
        return to_numpy(self)

    def item(self) -> Any:
        """Return the single element as a Python number."""
        if self.size != 1:
            raise ShapeError(f"item() needs one element, the shape is {self.shape}.")
        return self.numpy().reshape(()).item()

    def tolist(self) -> Any:
        """Return the numbers as nested lists."""
        return self.numpy().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
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
        if isinstance(value, np.ndarray) and not value.flags.writeable:
            # NumPy hands out no read-only DLPack: a copy keeps tensors immutable.
            value = value.copy()
        return value.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        value = concrete(self)
        return np.asarray(value).__dlpack_device__() if isinstance(value, np.generic) else (
            value.__dlpack_device__()
        )  # fmt: skip

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if not dtypes.is_integer(self.dtype):
            raise TypeError(f"Only integer tensors serve as an index, this one is {self.dtype}.")
        return int(self.item())

    def __bool__(self) -> bool:
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

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> Any:
        return Tensor, (np.array(self.numpy()),)

    def __deepcopy__(self, memo: Any) -> Tensor:
        return Tensor(np.array(self.numpy()))

    def to(self, device: str) -> Tensor:
        """Return this tensor on `device`: "cpu", "gpu" or "gpu:1"."""
        return wrap(_movers[0](concrete(self), device))

    # --- derivatives ------------------------------------------------------------------------

    def backward(self, gradient: Any = None, create_graph: bool = False) -> None:
        """Add the derivatives of this tensor to the `.grad` of all it depends on.

        Args:
            gradient: the derivative of what is wanted by this tensor; may be left out (1) for a
                tensor of one element.
            create_graph: keep records of the reverse pass, so that `.grad` has derivatives too.
        """
        _reverse[0](self, gradient, create_graph)

    def detach(self) -> Tensor:
        """Return the same numbers cut off from what they depend on."""
        return wrap(self.value)


# The reverse pass and the mover between devices live in rooms above and register themselves.
_reverse: list[Any] = []
_movers: list[Any] = []


def wrap(value: Any) -> Tensor:
    """Return a tensor around a value that is one already (an array, or a value of a trace)."""
    t = Tensor.__new__(Tensor)
    t.value = value
    t.maker = t.key = t.grad = t.source = None
    t.index = 0
    t.tracked = False
    return t


def is_traced(x: Tensor) -> bool:
    """Return whether x is a value of a trace: it has a shape and a dtype but no numbers yet."""
    return type(x.value.dtype) is str


def concrete(x: Tensor) -> Any:
    """Return x's array.

    Raises:
        TraceError: x belongs to a trace and has no numbers.
    """
    value = x.value
    if type(value.dtype) is str:
        raise TraceError(
            f"A traced tensor of shape {x.shape} has no numbers yet: Python asked for its value"
            f"{_caller()} (bool(), float(), if, while, np.asarray, .numpy()). Use ops.cond, "
            "ops.where, ops.while_loop or ops.scan, or compile the model with run_eagerly=True."
        )
    return value


def _caller() -> str:
    """Return " at file:line" of the innermost frame that is not kerasish's own."""
    own = str(Path(__file__).parent)
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    return "" if frame is None else f" at {frame.f_code.co_filename}:{frame.f_lineno}"


def to_numpy(x: Any) -> Any:
    """Return `x` (a tensor, a variable or what NumPy takes) as a NumPy array."""
    if isinstance(x, Variable):
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


# --- from Python and NumPy -------------------------------------------------------------------


_SCALARS = (bool, int, float, complex)
_REALS = (int, float)
_FLOATS = {np.dtype(n) for n in ("float16", "float32", "float64")} | {*dtypes.FLOATS}
_constants: dict[Any, Any] = {}


def scalar(value: Any, dtype: str) -> Tensor:
    """Return a tensor without axes; the array of a number met often is kept."""
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


def convert(x: Any, dtype: str | None = None) -> Tensor:
    """Return `x` (tensor, variable, array, list, number) as a tensor, copied only if it must be."""
    name = None if dtype is None else dtypes.name_of(dtype)
    if isinstance(x, Variable):
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


def _scalar_dtype(x: Any) -> str:
    if type(x) is bool:
        return "bool"
    if type(x) is int:
        return "int32" if -(2**31) <= x < 2**31 else "int64"
    return config.floatx() if type(x) is float else "complex64"


def _convert_array(x: Any, name: str | None) -> Tensor:
    foreign = x
    if isinstance(x, (list, tuple)):
        array, name = _convert_list(x, name)
        if isinstance(array, Tensor):
            return array if name is None else convert(array, name)
        foreign = None
    elif hasattr(x, "__cuda_array_interface__") or isinstance(x, (np.ndarray, np.generic)):
        array = x
    elif hasattr(x, "__array__"):
        array = np.asarray(x)
    elif hasattr(x, "__dlpack__"):
        array = np.from_dlpack(x)
    else:
        array, foreign = np.asarray(x), None
    if array.dtype.kind in "OUSV" and "bfloat16" not in str(array.dtype):
        raise DTypeError(
            f"Expected numbers, got {type(x).__name__} with dtype {array.dtype}: {str(x)[:60]}"
        )
    if name is not None and array.dtype != dtypes.array_dtype(name):
        array, foreign = array.astype(dtypes.array_dtype(name)), None
    dtypes.name_of(array.dtype)
    made = wrap(array)
    if isinstance(foreign, np.ndarray) and (foreign.flags.writeable or id(foreign) in _locked):
        made.source = foreign
    return made


def _convert_list(x: Any, name: str | None) -> tuple[Any, str | None]:
    leaves = _leaves(x)
    for leaf in leaves:
        if hasattr(type(leaf), "__kerasish_function__"):
            raise SymbolicArgument(leaf)
    if any(isinstance(leaf, (Tensor, Variable)) for leaf in leaves):
        return ops.stack([convert(part, name) for part in x]), name
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ShapeError(f"Lists of unequal length make no tensor: {error}") from None
    if name is None and not any(hasattr(leaf, "dtype") for leaf in leaves):
        # Python numbers: the default float, 32-bit integers.
        if array.dtype.kind == "f":
            name = config.floatx()
        elif array.dtype == np.int64 and (not array.size or abs(array).max() < 2**31):
            name = "int32"
    return array, name


def _leaves(x: Any) -> list[Any]:
    if isinstance(x, (list, tuple)):
        return [leaf for part in x for leaf in _leaves(part)]
    return [x]


# --- an op's arguments -------------------------------------------------------------------------


def prepare(op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> tuple[Sequence[Tensor], Any]:
    """Return an op's inputs as tensors of fitting dtypes, and its attributes in canonical form."""
    tensors: Sequence[Tensor]
    if op.promote is None:
        if len(args) == 1 and type(args[0]) is Tensor:
            tensors = args
        else:
            tensors = [a if type(a) is Tensor else convert(a) for a in args]
    elif not op.promoted and _is_ready(args):
        tensors = args
    else:
        tensors = _promote(op, args)
    if op.canonical is not None:
        attrs = _canonical(op, tensors, attrs)
    return tensors, attrs


_canonicals: dict[Any, dict[str, Any]] = {}


def _canonical(op: Op, tensors: Sequence[Tensor], attrs: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes in canonical form; those met before for such shapes are kept."""
    if len(tensors) == 1:
        shapes: Any = tensors[0].value.shape
    else:
        shapes = tuple([t.value.shape for t in tensors])
    # 1, 1.0 and True are equal, but not the same attribute: their types are part of the key.
    values = attrs.values()
    key: Any = (op, shapes, *values, *map(type, values))
    if "dtype" in attrs:
        # None and "float" stand for the default float, which may change.
        key = (config.floatx(), key)
    try:
        found = _canonicals.get(key)
    except TypeError:
        # An attribute without a hash, such as a list.
        return op.canonical([t.value.shape for t in tensors], attrs)  # type: ignore[misc]
    if found is None:
        found = op.canonical([t.value.shape for t in tensors], attrs)  # type: ignore[misc]
        if len(_canonicals) >= 4096:
            _canonicals.clear()
        _canonicals[key] = found
    return found.copy()


_constant_tensors: dict[Any, Tensor] = {}


def _constant(value: Any, like: Tensor) -> Tensor:
    """Return a number as a tensor of the float dtype of `like`; it is kept, never handed out."""
    key = (value, like.value.dtype)
    found = _constant_tensors.get(key)
    if found is None or value == 0:  # 0.0 and -0.0 are equal
        found = scalar(value, like.dtype)
        if len(_constant_tensors) >= 2000:
            _constant_tensors.clear()
        _constant_tensors[key] = found
    return found


def _is_ready(args: Sequence[Any]) -> bool:
    """Return whether all are tensors of one floating dtype: nothing to promote."""
    dtype = None
    for a in args:
        if type(a) is not Tensor:
            return False
        own = a.value.dtype
        if dtype is None:
            dtype = own
        elif own is not dtype and own != dtype:
            return False
    return dtype in _FLOATS


def _promote(op: Op, args: Sequence[Any]) -> Sequence[Tensor]:
    first = op.promoted
    if len(args) == 2 and not first:
        a, b = args
        if type(a) is Tensor and type(b) in _REALS and a.value.dtype in _FLOATS:
            return a, _constant(b, a)
        if type(b) is Tensor and type(a) in _REALS and b.value.dtype in _FLOATS:
            return _constant(a, b), b
    kinds: list[str] = []
    waiting: list[Any] = []
    for i, a in enumerate(args):
        if type(a) in _SCALARS and i >= first:
            kinds.append("bool" if type(a) is bool else type(a).__name__)
        else:
            a = a if type(a) is Tensor else convert(a)
            if i >= first:
                kinds.append(a.dtype)
        waiting.append(a)
    dtype = dtypes.join_kinds(kinds)
    if op.promote == "float":
        dtype = dtypes.to_inexact(dtype)
    elif op.promote == "number" and dtype == "bool":
        dtype = "int32"
    result: list[Tensor] = []
    for i, a in enumerate(waiting):
        if type(a) is not Tensor:
            result.append(scalar(a, dtype))
        elif i >= first and a.dtype != dtype:
            result.append(ops.cast(a, dtype))
        else:
            result.append(a)
    return result


def record(op: Op, inputs: Sequence[Tensor], attrs: dict[str, Any], results: Any) -> None:
    """Give the tensors `results` their maker, so that gradients can flow to `inputs`."""
    maker = Record(op, inputs, attrs, tuple([r.value for r in results]))
    for t in inputs:
        if t.source is not None:
            _lock(maker, t.source)
    for index, r in enumerate(results):
        r.maker, r.index, r.tracked = maker, index, True


# --- arrays lent by the user, locked while a backward pass needs them ---------------------------

_locked: dict[int, int] = {}
_lock_guard = threading.Lock()


def _lock(maker: Record, array: Any) -> None:
    """Make the user's array read-only until `maker` is gone: a change in place then raises."""
    key = id(array)
    with _lock_guard:
        if key not in _locked:
            if not array.flags.writeable:
                return
            array.flags.writeable = False
        _locked[key] = _locked.get(key, 0) + 1
    weakref.finalize(maker, _unlock, key, array).atexit = False


def _unlock(key: int, array: Any) -> None:
    with _lock_guard:
        _locked[key] -= 1
        if not _locked[key]:
            del _locked[key]
            array.flags.writeable = True


# --- state -------------------------------------------------------------------------------------


class Scope:
    """Stands between variables and their values: what a trace or a pure step reads and writes."""

    def read(self, variable: Variable) -> Tensor:
        """Return the value that `variable` has here."""
        raise NotImplementedError(f"{type(self).__name__} reads no variables.")

    def write(self, variable: Variable, value: Tensor) -> None:
        """Set the value that `variable` has here."""
        raise NotImplementedError(f"{type(self).__name__} writes no variables.")


class _Scopes(threading.local):
    top: Scope | None = None


_scopes = _Scopes()


@contextmanager
def using_scope(scope: Scope | None) -> Iterator[None]:
    """Let `scope` stand for all variables inside the `with` block, in this thread."""
    before, _scopes.top = _scopes.top, scope
    try:
        yield
    finally:
        _scopes.top = before


def current_scope() -> Scope | None:
    """Return the scope in charge in this thread, or None."""
    return _scopes.top


class _Autocast(threading.local):
    dtype: str | None = None


_autocast = _Autocast()


@contextmanager
def autocast(dtype: str | None) -> Iterator[None]:
    """Read floating variables as `dtype` inside the block (None: as they are)."""
    before, _autocast.dtype = _autocast.dtype, dtype
    try:
        yield
    finally:
        _autocast.dtype = before


class Variable:
    """A named tensor that can be assigned: weights, optimizer slots, counters, seeds.

    Args:
        initializer: a function (shape, dtype=...) -> array or tensor, or the first value itself.
        shape: the shape, when an initializer function is given.
        dtype: the dtype's name; None: the value's, or `floatx()`.
        trainable: whether training changes it.
        autocast: whether layers of lower precision read it in their compute dtype.
        aggregation, synchronization, layout: kept for Keras's sake.
        name: the last part of its path.

    Example:
        >>> v = Variable([1.0, 2.0], name="v")
        >>> _ = v.assign_add([1.0, 1.0])
        >>> v.numpy().tolist()
        [2.0, 3.0]
    """

    __array_priority__ = 1000.0

    def __init__(
        self,
        initializer: Any,
        shape: Any = None,
        dtype: str | None = None,
        trainable: bool = True,
        autocast: bool = True,
        aggregation: str = "none",
        synchronization: str = "auto",
        name: str | None = None,
        layout: Any = None,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            raise TypeError(f"Variable() got an unexpected argument {next(iter(kwargs))!r}.")
        self.name = name or f"variable_{next(_serials)}"
        if "/" in self.name:
            raise ValueError(f"A variable's name has no '/', got {self.name!r}.")
        self.path = "/".join([*_names.stack, self.name])
        self.autocast, self.aggregation = bool(autocast), aggregation
        self.synchronization = synchronization
        self._layout = layout
        self._trainable = self._starts_trainable = bool(trainable)
        self._home: Any = None
        self.constraint: Any = None
        self.regularizer: Any = None
        self.overwrite_with_gradient = False
        self._key = Key(self)
        with using_scope(None), no_gradient(), using_engine(None):
            self._set(_own(_first_value(initializer, shape, dtype), self.name))

    def _set(self, tensor: Tensor) -> None:
        leaf = wrap(tensor.value)
        leaf.key = self._key
        leaf.tracked = self._trainable and dtypes.is_inexact(leaf.dtype)
        self._leaf = leaf

    # A compiled step keeps the value at a fixed address, its home, and writes there. Tensors
    # handed out are snapshots, taken when somebody asks.

    @property
    def _leaf(self) -> Tensor:
        leaf = self._current
        if leaf is None:
            leaf = wrap(self._home.array.copy())
            leaf.key = self._key
            leaf.tracked = self._trainable and dtypes.is_inexact(leaf.dtype)
            self._current = leaf
        return leaf

    @_leaf.setter
    def _leaf(self, leaf: Tensor) -> None:
        self._current = leaf
        self._at_home = False

    def _settle(self, make_home: Any) -> None:
        """Give the variable a home if it has none."""
        if self._home is None:
            self._home = make_home(self)
            self._at_home = False

    def _go_home(self) -> None:
        """Copy the present value into the home."""
        np.copyto(self._home.array, to_numpy(self._leaf))
        self._at_home = True

    def _moved(self) -> None:
        """Note that a compiled step has written into the home."""
        self._current = None
        self._at_home = True

    @property
    def value(self) -> Any:
        """The present value, a tensor."""
        scope = _scopes.top
        value = self._leaf if scope is None else scope.read(self)
        dtype = _autocast.dtype
        if dtype is not None and self.autocast and dtype != value.dtype:
            return ops.cast(value, dtype) if dtypes.is_float(value.dtype) else value
        return value

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes; fixed for life."""
        return self._leaf.shape

    @property
    def dtype(self) -> str:
        """The dtype's name; fixed for life. Inside an autocast block, what is read there."""
        dtype = self._leaf.dtype
        cast = _autocast.dtype
        return cast if cast and self.autocast and dtypes.is_float(dtype) else dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._leaf.shape)

    @property
    def trainable(self) -> bool:
        """Whether training changes it."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = bool(value)
        self._leaf.tracked = self._trainable and dtypes.is_inexact(self._leaf.dtype)

    @property
    def grad(self) -> Tensor | None:
        """The derivative that `backward()` left here, or None."""
        return self._grad if hasattr(self, "_grad") else None

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self._grad = value

    def assign(self, value: Any) -> Any:
        """Set the value; its shape must be the variable's. Return the new value."""
        own = self._leaf
        if not isinstance(value, (Tensor, Variable)):
            # The user's array stays the user's: later changes to it must not reach us.
            value = np.array(value)
        with autocast(None):
            new = convert(value, own.dtype)
        if new.shape != own.shape:
            raise ShapeError(
                f"Variable {self.path!r}: the shape is {own.shape}, cannot assign {new.shape}."
            )
        scope = _scopes.top
        if scope is not None:
            scope.write(self, new)
        elif is_traced(new):
            raise TraceError(f"Variable {self.path!r}: a traced value was assigned outside.")
        else:
            self._set(new)
        return self.value

    def assign_add(self, value: Any) -> Any:
        """Add `value`; return the new value."""
        with autocast(None):
            return self.assign(ops.add(self.value, value))

    def assign_sub(self, value: Any) -> Any:
        """Subtract `value`; return the new value."""
        with autocast(None):
            return self.assign(ops.subtract(self.value, value))

    def numpy(self) -> Any:
        """Return the value as a NumPy array (read-only)."""
        return to_numpy(self.value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.value.__array__(dtype, copy)

    def __repr__(self) -> str:
        return (
            f"<Variable path={self.path}, shape={self.shape}, dtype={self.dtype}, "
            f"value={self._leaf.numpy() if self._leaf.size < 20 else '...'}>"
        )

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: Any) -> Any:
        return ops.equal(self, other)

    def __deepcopy__(self, memo: Any) -> Variable:
        new = Variable.__new__(Variable)
        memo[id(self)] = new
        state = {k: v for k, v in self.__dict__.items() if k not in _OWN_STATE}
        new.__dict__.update(state)
        new._key, new._home = Key(new), None
        new._set(self._leaf)
        return new

    def __getstate__(self) -> dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if k not in _OWN_STATE}
        return {**state, "_array": np.array(self._leaf.numpy())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        array = state.pop("_array")
        self.__dict__.update(state)
        self._key, self._home = Key(self), None
        self._set(wrap(array))

    def __getattr__(self, name: str) -> Any:
        # What a tensor does (reshape, sum, T, ...), a variable does by its value.
        if name.startswith("_") or name not in _TENSOR_METHODS:
            raise AttributeError(f"Variable has no attribute {name!r}.")
        return getattr(self.value, name)


_OWN_STATE = {"_current", "_home", "_at_home", "_key", "_grad"}  # not copied, not pickled
_TENSOR_METHODS = {
    "size", "device", "item", "tolist", "to", "backward", "detach", "T", "reshape", "astype",
    "sum", "mean", "max", "min", "requires_grad",
}  # fmt: skip


def _forward(name: str) -> Any:
    method = getattr(Tensor, name)

    def operator(self: Variable, *args: Any) -> Any:
        return method(self.value, *args)

    operator.__name__ = name
    return operator


for _name in (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul "
    "rmatmul neg pos abs invert and rand or ror xor rxor ne lt le gt ge getitem float int index "
    "bool len iter round dlpack dlpack_device lshift rshift format complex"
).split():
    setattr(Variable, f"__{_name}__", _forward(f"__{_name}__"))


def _first_value(initializer: Any, shape: Any, dtype: str | None) -> Tensor:
    if callable(initializer) and not hasattr(initializer, "__array__"):
        if shape is None:
            raise ValueError("Variable: an initializer function needs a shape.")
        made = convert(initializer(tuple(shape), dtype=dtypes.name_of(dtype)))
        return convert(made, dtype or None)
    value = convert(initializer, dtype)
    if shape is not None and tuple(shape) != value.shape:
        raise ShapeError(f"Variable: shape {tuple(shape)} given, the value has {value.shape}.")
    if dtype is None and value.dtype == "float64" and not hasattr(initializer, "dtype"):
        value = convert(value, config.floatx())
    return value


def _own(tensor: Tensor, name: str) -> Tensor:
    if is_traced(tensor):
        raise TraceError(
            f"Variable {name!r} is made while a step is traced; make it in build() or __init__()."
        )
    value = tensor.value
    if tensor.source is not None or not hasattr(value, "flags") or not value.flags.owndata:
        value = value.copy() if hasattr(value, "copy") else np.asarray(value)
    return wrap(np.asarray(value) if isinstance(value, np.generic) else value)


class _Names(threading.local):
    def __init__(self) -> None:
        self.stack: list[str] = []


_names = _Names()


@contextmanager
def name_scope(name: str, **kwargs: Any) -> Iterator[None]:
    """Put `name` before the paths of the variables made inside the block."""
    _names.stack.append(name)
    try:
        yield
    finally:
        _names.stack.pop()


def current_path() -> str:
    """Return the path of the name scopes in force, "" outside all."""
    return "/".join(_names.stack)


__all__ = [
    "Key", "Record", "Scope", "Tensor", "Variable", "autocast", "concrete", "convert",
    "current_path", "current_scope", "is_traced", "name_scope", "no_gradient", "prepare",
    "record", "recording", "scalar", "to_numpy", "using_scope", "wrap",
]  # fmt: skip
