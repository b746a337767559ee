"""Which ops and composed functions have a translation to ONNX, and why the others have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kerasish.export.onnx.writer import Item, OnnxWriter
from kerasish.graph.ir import GraphOp
from kerasish.ops.shapes import Spec

Translation = Callable[[OnnxWriter, "Call"], Any]
TRANSLATIONS: dict[Any, Translation] = {}
UNTRANSLATED: dict[Any, str] = {}


class Call(NamedTuple):
    """One application of an op, to be written.

    Attributes:
        inputs: the values that it reads.
        attrs: its attributes; sizes may be open.
        outputs: the specs of its results.
        makers: value name -> the call that computes it, for patterns of several ops.
    """

    inputs: list[Item]
    attrs: dict[str, Any]
    outputs: list[Spec]
    makers: dict[str, tuple[Any, Call]]

    @property
    def x(self) -> Item:
        """The first input."""
        return self.inputs[0]

    @property
    def out(self) -> Spec:
        """The spec of the first result."""
        return self.outputs[0]


def translates(*ops: Any) -> Callable[[Translation], Translation]:
    """Register a function `(writer, call) -> Item` (or a list of them) as the translation of ops.

    Args:
        ops: `Op`s, composed functions' `GraphOp`s, or the name of a kind of control flow.
    """

    def register(f: Translation) -> Translation:
        for op in ops:
            if op in TRANSLATIONS or op in UNTRANSLATED:
                raise ValueError(f"{op!r} has two translations to ONNX")
            TRANSLATIONS[op] = f
        return f

    return register


def translate_by(rule: Translation, *ops: Any) -> None:
    """Register a function as the translation of ops; as `translates`."""
    translates(*ops)(rule)


def untranslated(reason: str, *ops: Any) -> None:
    """Note why ops have no translation."""
    for op in ops:
        if op in TRANSLATIONS or op in UNTRANSLATED:
            raise ValueError(f"{op!r} has a translation to ONNX, or two reasons for none")
        UNTRANSLATED[op] = reason


def operator(kind: str, **attrs: Any) -> Translation:
    """Return the translation of an op that ONNX has: one operator of the same inputs."""
    return lambda w, call: w.op(kind, call.inputs, call.out.dtype, call.out.shape, **attrs)


# --- layers that run on the host ----------------------------------------------------------------

HOST_LAYERS: dict[type, Callable[..., Any]] = {}


def computes(layer: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function `(layer, *inputs) -> result` of tensors for a class of host layers.

    It is called in the trace for an export, where the layer itself would want numbers.
    """

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        HOST_LAYERS[layer] = f
        return f

    return register


# --- composed functions that are one ONNX operator ---------------------------------------------


class ComposedOp(GraphOp):
    """The op of a node that stands for a composed function; tensors and attributes are taken as
    they are.
    """

    promote = None
    promoted = 0
    canonical = None
    variadic = False


Parts = tuple[list[Any], dict[str, Any]]  # inputs and attributes
Composed = tuple[ComposedOp, Sequence[Any], dict[str, Any]]
COMPOSED: dict[Any, tuple[int, Callable[..., Composed | None]]] = {}


def not_run(xp: Any, *inputs: Any, **attrs: Any) -> Any:
    """Raise an error: the kernel of ops that are only written."""
    raise NotImplementedError("a composed function in a graph for export is not run")


def composed(function: Any, shape: Callable[..., Spec], since: int = 0) -> Callable[..., Any]:
    """Register a composed function that is written as one ONNX operator.

    The decorated function takes the composed function's arguments and returns (inputs, attributes),
    or None where its ops are to be written one by one. The decorator returns the op of its nodes,
    for `translates`.

    Args:
        function: the composed function, from `kerasish.ops.op.function`.
        shape: the shape rule of the node, `shape(*specs, **attrs)`.
        since: the version of the operator set that has the operator; ops are written one by one
            for older ones.
    """

    def register(f: Callable[..., Any]) -> Any:
        op = ComposedOp(function.__name__, not_run, shape)

        def bound(*args: Any, **kwargs: Any) -> Composed | None:
            result = f(*args, **kwargs)
            return None if result is None else (op, *result)

        COMPOSED[function] = since, bound
        return op

    return register
