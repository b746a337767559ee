"""An op: what is computed, with its shape rule, its gradient and its reference kernel.

An op depends on no device and no tensor class. A call passes it to the current engine, which
is kept in the slot below: the eager backend applies its kernel at once, a trace writes a node.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from kerasish.ops.engine import Engine as Engine
from kerasish.ops.engine import UpdateFormula as UpdateFormula
from kerasish.ops.rows import Rule, elementwise
from kerasish.ops.shapes import Unknown
from kerasish.outside import comes_from_outside, stand_in
from kerasish.overriding import override
from kerasish.tracebacks import hide_frames, hint_keywords
from kerasish.typing import AnyTensor, Structure

P = ParamSpec("P")
R = TypeVar("R")


class _Slot(threading.local):
    engine: Engine | None = None
    inferring = False


_slot = _Slot()


class _OnFirstUse:
    """The default engine before the first op: it is made when an attribute of it is needed.

    Args:
        make: makes the engine, which takes this one's place.
    """

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._make = make

    def engine(self) -> Engine:
        """Return the engine, the default one from now on."""
        engine = self._make()
        if _default[0] is self:
            _default[0] = engine
        return engine

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the engine."""
        return getattr(self.engine(), name)


_default: list[Any] = []  # one engine


def current_engine() -> Engine:
    """Return the current engine of this thread."""
    engine = _slot.engine or _default[0]
    return engine.engine() if type(engine) is _OnFirstUse else engine


def set_default_engine(make: Callable[[], Engine]) -> None:
    """Make the engine that `make()` returns the current one wherever no other one is.

    Args:
        make: is called at the first op.
    """
    _default[:] = [_OnFirstUse(make)]


def has_chosen_engine() -> bool:
    """Return whether this thread has its own engine: a trace, or a step's."""
    return _slot.engine is not None


def is_inferring(x: AnyTensor) -> bool:
    """Return whether x has no numbers since only shapes and dtypes are inferred."""
    return _slot.inferring or any(type(s) is Unknown for s in x.shape)


def using_engine(engine: Engine | None) -> AbstractContextManager[None]:
    """Make `engine` (None: the default) this thread's current one inside the `with` block."""
    return override(_slot, "engine", engine)


class SymbolicArgument(Exception):  # noqa: N818 (a signal, not an error)
    """Raised by engines that meet a symbolic argument; carries it to `Op.__call__`."""

    def __init__(self, argument: Any) -> None:
        super().__init__()
        self.argument = argument


REGISTRY: dict[str, Op] = {}


_missing = object()


class Traits:
    """What passes and code generators need of an op, independent of its name.

    Attributes:
        kind: the family that it belongs to.
        elementwise: each element of the result depends on one element of each input, which
            broadcast.
        commutative: swapping its two inputs changes no bit of the result.
        native: what computes one element in a fused loop: the name of a loop op (see
            `backends/static/codegen/loop_ops.py`), or a function `native(loop, *values, **attrs)`
            that composes loop ops, which the values' operators and `loop.op(name, *values)` make;
            None: no fused loop does. Element-wise ops have their own name.
        reduction: what a fused loop does along the reduced axes: "sum", "max", "min", "prod",
            "all", "any", "argmax" or "argmin"; "" where the op reduces nothing natively.
        view: the result's elements are the input's, in order, or repeated.
        aliases: the result may share the input's memory. An element-wise op's result then is the
            input.
        exact: each element of float32 is one IEEE operation, or a choice: any code gives the same
            number.
        keeps_zero: the result is 0 wherever the (first) input is.
        repeats: the result is one number or a few, repeated: cheaper made than read.
        cheap: an element of the result takes no longer to compute than one of an input to read.
        cheaper_than_memory: an element takes no longer to compute than to write to memory and to
            read again, where the array is larger than the caches.
        exact_storage: the result depends on the exact dtype, not only on the number.
        epilogues: its native product can add a bias or another value and apply relu itself.
        adds_rows: the result is a table of zeros to which a few rows are added, in turn, at those
            that the second input names; the attribute `size` is the number of its rows.
        communicates: "sum" or "gather" where the result depends on the inputs on other ranks, all
            of which compute it at the same place of the graph, and never at compile time; "" else.
        calls_python: the op is a Python function (`ops.host`): no engine has native code for it.
        symbol: the operator that Python writes for the op; "" for none.
        effect: whether the op runs for what it does (it prints), not for its result, which is its
            first input. A trace lets each effect read the result of the one before it, and makes
            the last one an output, so that no pass drops, merges or reorders them.
        flops: `flops(input shapes, result shapes)` -> how many; None: by the kind.
        rows: the place of a batch's rows in the results (`ops/rows.py`); None: the op may mix
            them. Element-wise ops have a rule.
    """

    kind = ""
    elementwise = False
    commutative = False
    native: str | Callable[..., Any] | None = None
    reduction = ""
    view = False
    aliases = False
    exact = False
    keeps_zero = False
    repeats = False
    cheap = False
    cheaper_than_memory = False
    exact_storage = False
    epilogues = False
    adds_rows = False
    communicates = ""
    calls_python = False
    symbol = ""
    effect = False
    flops: Callable[..., int] | None = None
    rows: Rule | None = None

    @property
    def gives_index(self) -> bool:
        """Whether the op is a reduction to the index of an element, not to a value."""
        return self.reduction in ("argmax", "argmin")


def c_function(name: str) -> Callable[..., Any]:
    """Return the trait `native` of an op that is a function of floats of the C library.

    Args:
        name: the function for float64, "asin" for example: one of `C_FUNCTIONS` in
            `backends/static/codegen/loop_ops.py`.
    """
    return lambda loop, *values: loop.op("c_function", *values, function=name)


_DERIVED = {"kind", "elementwise", "gives_index"}
TRAITS = frozenset(n for n in vars(Traits) if not n.startswith("_")) - _DERIVED


ELEMENTWISE_KINDS = frozenset(("elementwise", "comparison", "logic", "bits"))


class Op(Traits):
    """One operation: name, kind, shape rule, gradient, reference kernel, examples, traits.

    Attributes:
        kernel: `kernel(xp, *inputs, **attrs)` on NumPy or CuPy arrays: the definition.
        shape: `shape(*specs, **attrs)` -> Spec, or a tuple of them; sizes may be None.
        grad: `grad(g, y, *inputs, **attrs)` -> one gradient (or None) per input, written in ops;
            sums over broadcast axes are left to the reverse pass. None: no gradient flows. A tuple
            of such rules, each giving the gradient of one input, lets the pass skip those that
            no code asks for.
        promote: "same" (inputs meet in one dtype), "float" (the same, then at least the default
            float), "number" (the same, truth values as int32), "product" (the same; only
            int8 uses int32, in which products are added), or None (unchanged). `promoted`
            is the index of the first input concerned.
        canonical: `canonical(shapes, attrs)` -> attrs in their one hashable form.
        variadic: the op's first argument is a list of tensors.
        sparse_gradients: whether `grad` gets None, not zeros, for outputs without a gradient.
        accumulates: of an op with one output, whether `grad` takes `onto`: the sum of the gradients
            that have arrived at its first input so far, or None. `grad` returns its own
            gradient added to this sum: a kernel may add while it writes.
    """

    sparse_gradients = False
    accumulates = False

    def __init__(
        self,
        kernel: Callable[..., Any],
        kind: str,
        shape: Callable[..., Any],
        grad: Callable[..., Any] | tuple[Callable[..., Any], ...] | None,
        promote: str | None,
        promoted: int,
        canonical: Callable[..., dict[str, Any]] | None,
        examples: Sequence[Any],
        variadic: bool,
        outputs: int,
        name: str | None,
        **traits: Any,
    ) -> None:
        self.name = name or kernel.__name__.rstrip("_")
        self.kernel, self.kind, self.shape, self.grad = kernel, kind, shape, grad
        self.elementwise = kind in ELEMENTWISE_KINDS
        if self.elementwise:
            self.native, self.rows = self.name, elementwise
        if not traits.keys() <= TRAITS:
            raise TypeError(f"{self.name}: no traits are called {sorted(traits.keys() - TRAITS)}.")
        self.__dict__.update(traits)
        self.promote, self.promoted, self.canonical = promote, promoted, canonical
        self.examples, self.variadic, self.outputs = examples, variadic, outputs
        self.__doc__ = kernel.__doc__
        self.__name__ = self.__qualname__ = self.name
        self.__module__ = kernel.__module__
        self._read_signature()

    def _read_signature(self) -> None:
        parameters = list(inspect.signature(self.kernel).parameters.values())[1:]
        inputs = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
        attrs = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
        self.input_names = tuple(p.name for p in inputs)
        self.attr_names = tuple(p.name for p in attrs)
        self.defaults = {p.name: p.default for p in attrs if p.default is not p.empty}
        self.input_defaults = {p.name: p.default for p in inputs if p.default is not p.empty}
        self.arity = 1 if self.variadic else len(inputs)
        self._blank = {name: self.defaults.get(name, _missing) for name in self.attr_names}
        self._required = {name for name in self.attr_names if name not in self.defaults}
        # How many attributes have to be given at least, if they are given by position.
        places = [i for i, n in enumerate(self.attr_names, 1) if n not in self.defaults]
        self._needed = max(places, default=0)
        plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
        public = [p.replace(kind=plain, annotation=p.empty) for p in (*inputs, *attrs)]
        self.__signature__ = inspect.Signature(public)

    def __call__(self, *args: Any, **attrs: Any) -> Tensor:
        """Hand the op to the current engine.

        Symbolic arguments give a symbolic tensor; an op of several results gives a tuple (`TupleOp`
        for type checkers).
        """
        try:
            if attrs or self.attr_names or len(args) != self.arity:
                args, attrs = self.bind(args, attrs)
            try:
                return (_slot.engine or _default[0]).apply(
                    self, args[0] if self.variadic else args, attrs
                )
            except SymbolicArgument as signal:
                return signal.argument.__kerasish_function__(self, args, attrs)
        except Exception as error:
            hide_frames(error)
            raise

    def bind(self, args: Sequence[Any], attrs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return (inputs, attrs in the kernel's order) from a call's arguments, defaults filled in.

        Raises:
            TypeError: an argument is missing, unexpected or given twice.
        """
        count, blank = len(self.input_names), self._blank
        given = len(args) - count
        if not attrs:
            if self._needed <= given <= len(blank):
                filled = blank.copy()
                filled.update(zip(self.attr_names, args[count:]))
                return args[:count], filled
        elif not given and self._required <= attrs.keys() <= blank.keys():
            return args, {**blank, **attrs}
        return self._bind_with_care(args, attrs)

    def _bind_with_care(
        self, args: Sequence[Any], attrs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        names = (*self.input_names, *self.attr_names)
        if len(args) > len(names):
            raise TypeError(f"{self.name}() takes {len(names)} arguments, got {len(args)}.")
        values = dict(self.defaults)
        values.update(zip(names, args))
        for name, value in attrs.items():
            if name not in names:
                raise TypeError(
                    f"{self.name}() got an unexpected argument {name!r}; it takes {list(names)}."
                )
            if name in names[: len(args)]:
                raise TypeError(f"{self.name}() got two values for the argument {name!r}.")
            values[name] = value
        missing = [n for n in names if n not in values and n not in self.input_defaults]
        if missing:
            raise TypeError(f"{self.name}() misses the argument {missing[0]!r}.")
        inputs = [values.pop(n) for n in self.input_names if n in values]
        return inputs, {name: values[name] for name in self.attr_names}

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _find_op, (self.name,)


def _find_op(name: str) -> Op:
    return REGISTRY[name]


if TYPE_CHECKING:
    from kerasish.tensor import Tensor

    class TupleOp(Op):
        """An op of several results."""

        def __call__(  # type: ignore[override]
            self, *args: Any, **attrs: Any
        ) -> tuple[Tensor, ...]:
            raise NotImplementedError


@overload
def op(
    kind: str,
    shape: Callable[..., Any],
    grad: Callable[..., Any] | tuple[Callable[..., Any], ...] | None = None,
    promote: str | None = None,
    promoted: int = 0,
    *,
    outputs: Literal[1] = 1,
    **options: Any,
) -> Callable[[Callable[..., Any]], Op]: ...
@overload
def op(
    kind: str,
    shape: Callable[..., Any],
    grad: Callable[..., Any] | tuple[Callable[..., Any], ...] | None = None,
    promote: str | None = None,
    *,
    outputs: int,
    **options: Any,
) -> Callable[[Callable[..., Any]], TupleOp]: ...


def op(
    kind: str,
    shape: Callable[..., Any],
    grad: Callable[..., Any] | tuple[Callable[..., Any], ...] | None = None,
    promote: str | None = None,
    promoted: int = 0,
    canonical: Callable[..., dict[str, Any]] | None = None,
    examples: Sequence[Any] = (),
    variadic: bool = False,
    outputs: int = 1,
    name: str | None = None,
    **traits: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Make an op of its reference kernel `kernel(xp, *inputs, *, **attrs)` and register it.

    The kernel's keyword-only parameters are the op's attributes; callers may give them by
    position too. `examples` is a sequence of (inputs, attrs), an input being a shape, an array
    or a function rng -> array. `traits` are those of `Traits`.
    """

    def make(kernel: Callable[..., Any]) -> Op:
        result = Op(
            kernel, kind, shape, grad, promote, promoted, canonical, examples, variadic, outputs,
            name, **traits,
        )  # fmt: skip
        if result.name in REGISTRY:
            raise ValueError(f"The op {result.name!r} is defined twice.")
        REGISTRY[result.name] = result
        return result

    return make


# Types met before that are neither symbolic nor hold what might be: asking again is slow.
_plain: set[type] = {int, float, bool, str, type(None)}


def _symbolic_among(values: Structure) -> Any:
    for value in values:
        kind = type(value)
        if kind in _plain:
            continue
        if hasattr(kind, "__kerasish_function__"):
            return value
        if kind is list or kind is tuple:
            result = _symbolic_among(value)
        elif kind is dict:
            result = _symbolic_among(value.values())
        elif comes_from_outside(kind):
            result = stand_in(value)
        else:
            _plain.add(kind)
            continue
        if result is not None:
            return result
    return None


def function(f: Callable[P, R]) -> Callable[P, R]:
    """Make a function composed of ops one step of a functional model when its input is symbolic."""

    @functools.wraps(f)
    def composed(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            symbolic = _symbolic_among(args)
            if symbolic is None and kwargs:
                symbolic = _symbolic_among(kwargs.values())
            if symbolic is not None:
                with override(_slot, "inferring", True):
                    return symbolic.__kerasish_function__(composed, args, kwargs)
            engine = _slot.engine or _default[0]
            if engine.fuses_calls:
                result = engine.fused_call(composed, args, kwargs)
                if result is not None:
                    return result
            return f(*args, **kwargs)
        except Exception as error:
            hint_keywords(error, f, kwargs)
            hide_frames(error, keep_entry=False)
            raise

    return composed
