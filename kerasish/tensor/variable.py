"""Variables: named tensors that can be assigned, with a buffer for compiled steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kerasish import ops
from kerasish.changes import note_change
from kerasish.devices import _State as _devices
from kerasish.devices import adopt, lies_on_gpu, place, place_of
from kerasish.errors import ShapeError, TraceError, at_user_line
from kerasish.identifiers import get_by_name
from kerasish.ops import dtypes
from kerasish.ops.op import using_engine
from kerasish.scopes import Scope, _autocast, _scopes, autocast, current_path, using_scope
from kerasish.tensor.first_value import first_value, large_zeros, owned
from kerasish.tensor.tensor import (
    Holder,
    Key,
    Tensor,
    _serials,
    convert,
    is_traced,
    no_gradient,
    to_numpy,
    wrap,
)
from kerasish.typing import AnyTensor, Array, InitializerLike, Shape, TensorLike


class Store(Protocol):
    """Keeps the value of a variable in another form, such as a segment on each rank."""

    shape: tuple[int, ...]
    dtype: str

    def read(self) -> Tensor:
        """Return the value, a result of `Variable.leaf_of` or similar."""

    def write(self, value: Tensor) -> None:
        """Keep a value of the variable's shape and dtype."""


class Variable(Holder):
    """A named tensor that can be assigned: weights, optimizer slots, counters, seeds.

    Args:
        initializer: a function (shape, dtype=...) -> array or tensor, or the first value itself.
        shape: the shape, when an initializer function is given; None: that of the value.
        dtype: the dtype's name; None: the value's, or `floatx()`.
        trainable: whether training changes it.
        autocast: whether layers of lower precision read it in their compute dtype.
        aggregation: how the values that the shards of a batch assign are combined: "sum" adds up
            the changes, "only_first_replica" takes the first, all others the mean over rows.
        synchronization, layout: accepted as in Keras; no effect.
        name: the last part of its path; None: "variable_0" and so on.

    Attributes:
        holds_seed: whether it is the state [seed, draw] of a random sequence.
        store: keeps the value in another form; None: the variable keeps it.

    Example:
        >>> v = Variable([1.0, 2.0], name="v")
        >>> _ = v.assign_add([1.0, 1.0])
        >>> v.numpy().tolist()
        [2.0, 3.0]
    """

    __array_priority__ = 1000.0
    holds_seed = False
    store: Store | None = None
    _initializer: Any = None  # of the current value; see `recipe`
    _zeros: tuple[tuple[int, ...], str] | None = None  # shape and dtype of zeros without memory

    def __init__(
        self,
        initializer: InitializerLike | TensorLike,
        shape: Shape | None = None,
        dtype: str | None = None,
        trainable: bool = True,
        autocast: bool = True,
        aggregation: str = "none",
        synchronization: str = "auto",
        name: str | None = None,
        layout: object = None,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            raise TypeError(f"Variable() got an unexpected argument {next(iter(kwargs))!r}.")
        self.name = name or f"variable_{next(_serials)}"
        if not isinstance(self.name, str) or "/" in self.name:
            raise ValueError(f"A variable's name is a string without '/', got {self.name!r}.")
        path = current_path()
        self.path = f"{path}/{self.name}" if path else self.name
        self.autocast, self.aggregation = bool(autocast), aggregation
        self.synchronization = synchronization
        self._layout = layout
        self._trainable = self.initially_trainable = bool(trainable)
        self.buffer: Any = None
        self.constraint: Any = None
        self.regularizer: Any = None
        self.overwrite_with_gradient = False
        self.key = Key(self)
        if isinstance(initializer, str):
            initializer = get_by_name(initializer, "keras.initializers", "initializer")
        self._current: Tensor | None = None
        self.in_buffer = False
        with using_scope(None), no_gradient(), using_engine(None):
            self._zeros = large_zeros(initializer, shape, dtype)
            if self._zeros is None:
                self._set(owned(first_value(initializer, shape, dtype), self.name))
            else:
                note_change()
        if getattr(initializer, "repeats", False) and not _devices.accelerated:
            # A copy: later changes of the initializer by the caller have no effect.
            self._initializer = copy(initializer)

    def leaf_of(self, value: object) -> Tensor:
        """Return a tensor of `value`, an array or a value of a trace, for derivatives by this."""
        leaf = wrap(value)
        leaf.key = self.key
        leaf.tracked = self._trainable and dtypes.is_inexact(leaf.dtype)
        return leaf

    def _set(self, tensor: Tensor) -> None:
        self.latest = self.leaf_of(tensor.value)

    # A compiled step keeps the value in a buffer at a fixed address and writes there. Tensors
    # returned to callers are snapshots, created on request.

    def recipe(self) -> Callable[[], Array] | None:
        """Return a function that computes the current value again, bit for bit, if possible.

        It is possible while the variable has its first value, and that is from an initializer that
        repeats (`Initializer.repeats`). A failed load uses it to restore the value, so that loading
        a new model does not hold its first values and those of the file together.

        Returns:
            The function, or None: the value can only be restored from a copy.

        Example:
            >>> from kerasish import initializers
            >>> v = Variable(initializers.GlorotUniform(seed=1), shape=(2, 2))
            >>> bool((v.recipe()() == v.numpy()).all())
            True
            >>> _ = v.assign_add(np.ones((2, 2)))
            >>> v.recipe() is None
            True
        """
        initializer, shape, dtype = self._initializer, self.shape, self.stored_dtype
        if initializer is None:
            return None

        def compute() -> Array:
            with using_scope(None), no_gradient(), using_engine(None), autocast(None):
                return to_numpy(owned(first_value(initializer, shape, dtype), self.name))

        return compute

    @property
    def latest(self) -> Tensor:
        """The value outside of all scopes, assigned last by a step or by the user.

        It may be set to a result of `leaf_of`.
        """
        if self.store is not None:
            return self.store.read()
        leaf = self._current
        if leaf is None:
            leaf = self._current = self.leaf_of(self._numbers())
        return leaf

    @latest.setter
    def latest(self, leaf: Tensor) -> None:
        if self.store is not None:
            self.store.write(leaf)
            return
        self._current = leaf
        self.in_buffer = False
        self._initializer = self._zeros = None
        note_change()

    def _numbers(self) -> Array:
        """Return a new array of the value in the buffer, or of zeros without memory."""
        if self._zeros is None:
            return self.buffer.array.copy()
        shape, dtype = self._zeros
        return np.zeros(shape, dtypes.array_dtype(dtype))

    def keep_in(self, store: Store | None) -> None:
        """Let `store` keep the value, which it already has; None: assign the value next.

        Args:
            store: provides the value from now on.
        """
        self.store, self._initializer, self._zeros = store, None, None
        self.buffer, self.in_buffer = None, False
        self._current = None
        note_change()

    def use_buffer(self, make: Callable[..., Any]) -> None:
        """Create the variable's buffer by `make(variable)` if it has none.

        A buffer has an `array` and counts its writes in `writes`. `is_zero` is whether the array
        holds zeros before it is written.
        """
        if self.buffer is None:
            self.buffer = make(self)
            self.in_buffer = False
            note_change()

    def sync_to_buffer(self) -> None:
        """Copy the current value into the buffer; from then on only the buffer holds it."""
        buffer = self.buffer
        if self._current is not None or self._zeros is None:
            np.copyto(buffer.array, to_numpy(self.latest))
        elif buffer.writes or not buffer.is_zero:
            buffer.array.fill(0)
        note_written((self,))

    @property
    def value(self) -> Tensor:
        """The current value, a tensor."""
        scope = _scopes.top
        if self.store is not None:
            given = _value_in(scope, self)
            value = self.store.read() if given is None else given
        else:
            value = self.latest if scope is None else scope.read(self)
        dtype = _autocast.dtype
        if dtype is not None and self.autocast and dtype != value.dtype:
            return ops.cast(value, dtype) if dtypes.is_float(value.dtype) else value
        return value

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes; they never change."""
        leaf = self._current
        if leaf is not None:
            return leaf.shape
        if self._zeros is not None:
            return self._zeros[0]
        return self.buffer.array.shape if self.store is None else self.store.shape

    @property
    def dtype(self) -> str:
        """The dtype's name; it never changes. Inside an autocast block: the dtype of reads."""
        dtype = self.stored_dtype
        cast = _autocast.dtype
        return cast if cast and self.autocast and dtypes.is_float(dtype) else dtype

    @property
    def stored_dtype(self) -> str:
        """The dtype's name, also inside an autocast block."""
        leaf = self._current  # reading the value would copy it out of the buffer
        if leaf is not None:
            return leaf.dtype
        if self._zeros is not None:
            return self._zeros[1]
        return dtypes.name_of(self.buffer.array.dtype) if self.store is None else self.store.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def trainable(self) -> bool:
        """Whether training changes it."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = bool(value)
        if self.store is None:
            self.latest.tracked = self._trainable and dtypes.is_inexact(self.latest.dtype)

    _grad: Tensor | None = None

    @property
    def grad(self) -> Tensor | None:
        """The derivative that `backward()` stored here, or None."""
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self._grad = value

    def assign(self, value: object) -> Tensor:
        """Set the value; its shape must be the variable's. Return the new value."""
        stored = self.put(value)
        return self.value if stored is None else stored

    def put(self, value: object) -> Tensor | None:
        """Set the value like `assign`; return it if a store keeps it, else None."""
        scope, leaf = _scopes.top, self._current
        if type(value) is Tensor and scope is not None and leaf is not None:
            new, old = value.value, leaf.value
            plain = type(new.dtype) is not str and new.dtype == old.dtype
            if plain and new.shape == old.shape and not self.store and not _devices.accelerated:
                scope.write(self, value)  # what steps assign
                return None
        if type(value) is Tensor and value.dtype == self.stored_dtype:
            new = value  # what steps assign
        else:
            if not isinstance(value, (Tensor, Variable)):
                # A copy: later changes of the user's array must have no effect.
                value = adopt(value).copy() if lies_on_gpu(value) else np.array(value)
            with autocast(None):
                new = convert(value, self.stored_dtype)
        if new.shape != self.shape:
            raise ShapeError(
                f"Variable {self.path!r}: the shape is {self.shape}, cannot assign {new.shape}."
            )
        if _devices.accelerated and not is_traced(new):
            # A variable stays on its device.
            new = wrap(place(new.value, place_of(self.latest.value)))
        scope = _scopes.top
        kept = scope is not None and scope.keeps_assignments
        if self.store is not None and not kept and _value_in(scope, self) is None:
            self.store.write(new)
            return new
        if scope is not None:
            scope.write(self, new)
        elif is_traced(new):
            raise TraceError(
                f"Variable {self.path!r}: a traced value was assigned outside{at_user_line()}."
            )
        else:
            self._set(new)
        return None

    def assign_add(self, value: TensorLike) -> Tensor:
        """Add `value`; return the new value."""
        with autocast(None):
            return self.assign(ops.add(self.value, value))

    def assign_sub(self, value: TensorLike) -> Tensor:
        """Subtract `value`; return the new value."""
        with autocast(None):
            return self.assign(ops.subtract(self.value, value))

    def numpy(self) -> Array:
        """Return the value as a NumPy array (read-only)."""
        return to_numpy(self.value)

    if TYPE_CHECKING:  # methods that the loop below the class adds

        def __float__(self) -> float: ...

        def __int__(self) -> int: ...

        def __index__(self) -> int: ...

        def __bool__(self) -> bool: ...

        def __len__(self) -> int: ...

    def __array__(self, dtype: str | None = None, copy: bool | None = None) -> Array:
        return self.value.__array__(dtype, copy)

    def __repr__(self) -> str:
        shown = self.store is None and self.latest.size < 20
        return (
            f"<Variable path={self.path}, shape={self.shape}, dtype={self.dtype}, "
            f"value={self.latest.numpy() if shown else '...'}>"
        )

    __hash__ = object.__hash__

    def __eq__(self, other: AnyTensor) -> Any:
        return ops.equal(self, other)

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        new = Variable.__new__(Variable)
        memo[id(self)] = new
        state = {k: v for k, v in self.__dict__.items() if k not in _OWN_STATE}
        new.__dict__.update(state)
        new.key, new.buffer = Key(new), None
        new._set(self.latest)
        return new

    def __getstate__(self) -> dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if k not in _OWN_STATE}
        return {**state, "_array": np.array(self.latest.numpy())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        array = state.pop("_array")
        self.__dict__.update(state)
        self.key, self.buffer = Key(self), None
        self._set(wrap(array))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # Methods of tensors (reshape, sum, T, ...) use the variable's value.
        if name.startswith("_") or name not in _TENSOR_METHODS:
            raise AttributeError(f"Variable has no attribute {name!r}.")
        return getattr(self.value, name)


def keep_all(values: Mapping[Variable, Tensor]) -> None:
    """Set `latest` of each variable to the value that a step has assigned.

    Args:
        values: variable -> a result of its `leaf_of`.
    """
    for variable, leaf in values.items():
        if variable.store is None:
            variable._current = leaf
            variable.in_buffer = False
            variable._initializer = variable._zeros = None
        else:
            variable.latest = leaf
    note_change()


def note_written(variables: Collection[Variable]) -> None:
    """Note that the buffers of variables hold their latest values."""
    for v in variables:
        v._current = v._initializer = v._zeros = None
        v.in_buffer = True
        v.buffer.writes += 1
    if variables:
        note_change()


def _value_in(scope: Scope | None, variable: Variable) -> Tensor | None:
    """Return a variable's value in a scope or an enclosing one; None if there is none."""
    while scope is not None:
        for known in (scope.written, scope.given):
            if variable in known:
                return known[variable]
        start = scope.start_of(variable)
        if start is not None:
            return start
        scope = scope.outer
    return None


_OWN_STATE = {  # not copied
    "_current", "buffer", "in_buffer", "key", "store", "_grad", "_initializer",
    "_zeros",
}  # fmt: skip
_TENSOR_METHODS = {
    "size", "device", "item", "tolist", "to", "backward", "detach", "T", "reshape", "astype",
    "sum", "mean", "max", "min", "requires_grad",
}  # fmt: skip


def _forward(name: str) -> Callable[..., Any]:
    method = getattr(Tensor, name)

    def operator(self: Variable, *args: Any) -> Any:
        return method(self.value, *args)

    operator.__name__ = name
    return operator


for _name in "float int index bool len iter dlpack dlpack_device format complex".split():
    setattr(Variable, f"__{_name}__", _forward(f"__{_name}__"))
