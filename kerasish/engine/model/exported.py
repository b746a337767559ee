"""Endpoints: functions of tensors as records that run again without the classes behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kerasish import ops
from kerasish.engine.function import function
from kerasish.engine.layer.input_spec import InputSpec
from kerasish.engine.layer.operation import KerasTensor
from kerasish.errors import ShapeError
from kerasish.graph.nested import Tracer
from kerasish.graph.portable import Player, ReferenceRecorder, sample_sizes
from kerasish.graph.trace import TensorRef, Traced, map_leaves, spec_of, trace_by
from kerasish.ops import dtypes
from kerasish.ops.op import current_engine
from kerasish.ops.shapes import Spec
from kerasish.tensor import Tensor, Variable, convert
from kerasish.typing import AnyTensor, Structure, TensorLike

_PLAIN = (type(None), bool, int, float, str)


# --- writing ----------------------------------------------------------------------------------


def record_endpoint(
    f: Callable[..., Any],
    signature: Sequence[Any],
    keep: Callable[[Any], str],
    name_of: Callable[[Variable], str],
) -> dict[str, Any]:
    """Return the record of what `f` does for arguments of a signature.

    Args:
        f: a function of structures of tensors.
        signature: for each argument a structure of `InputSpec`s, symbolic tensors or arrays. Sizes
            that are None stay open: those of first axes are one size, the number of examples; each
            other one is a separate size.
        keep: stores a constant array and returns its name.
        name_of: stores a variable and returns its name.

    Raises:
        ValueError: it depends on the open sizes in a way that no record says, or it changes
            variables.
        TraceError: Python asked for a number that is not there yet, or strings are needed.
    """
    sampled = trace_samples(f, signature)
    recorder = ReferenceRecorder(sampled.samples, keep)
    return {
        "sample": list(sampled.samples[0]),
        "open": [[list(spot) for spot in several] for several in sampled.open],
        "inputs": _encode(tuple(sampled.places)),
        "signature": [recorder.spec(column) for column in zip(*sampled.filled)],
        "variables": [name_of(v) for v in sampled.traces[0].variables],
        "outputs": _encode(sampled.traces[0].structure),
        "graph": recorder.graph([t.graph for t in sampled.traces]),
    }


class Sampled(NamedTuple):
    """Traces of one function, one for each row of sample sizes.

    Attributes:
        samples: the open sizes of each trace.
        open: for each open size the (input, axis) pairs that have it.
        places: the arguments' structures, with the place of each tensor as a `TensorRef`.
        filled: for each trace the specs of the tensors.
        traces: the traces, which differ in sizes only.
    """

    samples: list[Any]
    open: list[list[tuple[int, int]]]
    places: list[Any]
    filled: list[list[Spec]]
    traces: list[Traced]


def trace_samples(
    f: Callable[..., Any],
    signature: Sequence[Any],
    tracer: Callable[[], Tracer] = Tracer,
) -> Sampled:
    """Return traces of `f` with several sizes in place of each size that the signature leaves open.

    Args:
        f, signature: as for `record_endpoint`.
        tracer: makes the tracer of each trace.

    Raises:
        ValueError, TraceError: as for `record_endpoint`.
    """
    leaves: list[Spec] = []

    def enter(x: InputSpec | str | AnyTensor) -> TensorRef:
        leaves.append(_input_spec(x))
        return TensorRef(len(leaves) - 1)

    places = [map_leaves(enter, argument) for argument in signature]
    spots = _open_spots(leaves)
    samples = sample_sizes(len(spots))
    filled = [[_filled(spec, i, spots, row) for i, spec in enumerate(leaves)] for row in samples]
    traces = [trace_by(tracer(), f, *_put(places, specs)) for specs in filled]
    _check_traces(traces)
    return Sampled(samples, spots, places, filled, traces)


def _input_spec(x: Structure) -> Spec:
    result = spec_of(x)
    if isinstance(x, (InputSpec, KerasTensor)) and x.shape is not None:
        result = Spec(tuple(x.shape), dtypes.name_of(x.dtype or "float32"))
    if result is None:
        raise ValueError(
            "input_signature: expected InputSpec(shape=..., dtype=...), a symbolic tensor or an "
            f"array for each input, got {x!r}."
        )
    return result


def _open_spots(leaves: Sequence[Spec]) -> list[list[tuple[int, int]]]:
    """Return for each open size where it is found: (input, axis)."""
    every = [(i, a) for i, s in enumerate(leaves) for a, size in enumerate(s.shape) if size is None]
    examples = [spot for spot in every if spot[1] == 0]
    return [*([examples] if examples else []), *([spot] for spot in every if spot[1])]


def _filled(spec: Spec, place: int, spots: Sequence[Any], sizes: Sequence[int]) -> Spec:
    shape = list(spec.shape)
    for several, size in zip(spots, sizes):
        for i, axis in several:
            if i == place:
                shape[axis] = size
    return Spec(tuple(shape), spec.dtype)


def _put(places: Sequence[Any], specs: Sequence[Spec]) -> list[Any]:
    return map_leaves(lambda place: specs[place.number], places)


def _check_traces(traces: Sequence[Traced]) -> None:
    first = traces[0]
    if first.updated:
        names = ", ".join(repr(v.path) for v in first.updated[:5])
        raise ValueError(
            f"it assigns to variables ({names}); an archive is for inference only. Draw random "
            "numbers and keep states outside, or give them as inputs."
        )
    for other in traces[1:]:
        same = len(other.variables) == len(first.variables) and all(
            a is b for a, b in zip(other.variables, first.variables)
        )
        if not same or repr(other.structure) != repr(first.structure):
            raise ValueError("sizes are left open (None), but what is returned depends on them")


def _encode(structure: Structure) -> dict[str, Any]:
    if isinstance(structure, TensorRef):
        return {"tensor": structure.number}
    if isinstance(structure, dict) and all(isinstance(key, str) for key in structure):
        return {"dict": [[key, _encode(part)] for key, part in structure.items()]}
    if isinstance(structure, (list, tuple)):
        kind = "list" if isinstance(structure, list) else "tuple"
        return {kind: [_encode(part) for part in structure]}
    if isinstance(structure, _PLAIN):
        return {"plain": structure}
    raise ValueError(
        f"a {type(structure).__name__} among inputs or outputs; an archive takes and gives "
        "tensors, numbers, strings, None, and lists, tuples and dicts of them"
    )


# --- running ----------------------------------------------------------------------------------


class Endpoint:
    """A function of an archive; runs on the current engine.

    Args:
        name: what it is called.
        record: what `record_endpoint` gave, or what a file says.
        arrays: name -> constant.
        variables: name -> variable.

    Attributes:
        input_shapes: the shape of each input, None for open sizes.

    Raises:
        ValueError: no graph can be made from the record. Nothing has been computed then.
    """

    def __init__(
        self,
        name: str,
        record: dict[str, Any],
        arrays: dict[str, Any],
        variables: dict[str, Variable],
    ) -> None:
        self.name = name
        self._record, self._arrays = record, arrays
        self._variables = [variables[own] for own in record["variables"]]
        self._spots = _checked_spots(record)
        self._check()
        self._compiled = function(self._play)

    def _check(self) -> None:
        sample = tuple(_small(n) for n in self._record["sample"])
        graph = Player(self._record["graph"], self._arrays, sample).check()
        count = len(self._record["signature"])
        if self._record["graph"]["inputs"][:count] != self._record["signature"]:
            raise ValueError("the graph's inputs are not those of the signature")
        held = [Spec(tuple(v.shape), v.dtype) for v in self._variables]
        if [v.spec for v in graph.inputs[count:]] != held:
            raise ValueError("the graph's variables are not those that are stored")
        self._specs = [v.spec for v in graph.inputs[:count]]
        for several, size in zip(self._spots, sample):
            if any(self._specs[i].shape[axis] != size for i, axis in several):
                raise ValueError("the open sizes are not those of the signature")
        _numbered(self._record["inputs"], count)
        _numbered(self._record["outputs"], len(graph.outputs))
        left_open = {tuple(spot) for several in self._spots for spot in several}
        self.input_shapes = [
            tuple(None if (i, a) in left_open else n for a, n in enumerate(spec.shape))
            for i, spec in enumerate(self._specs)
        ]

    def __call__(self, *args: Any) -> dict[str, Any] | Tensor:
        """Return what the function gives for arguments like those of its signature."""
        results: dict[int, Any] = {}
        self._collect(self._record["inputs"], args, results)
        tensors = [self._fitting(i, results[i]) for i in range(len(self._specs))]
        self._sizes(tensors)
        return _decode(self._record["outputs"], self._compiled(*tensors))

    def _collect(self, structure: dict[str, Any], given: Structure, values: dict[int, Any]) -> None:
        ((kind, inside),) = structure.items()
        if kind == "tensor":
            values[inside] = given
        elif kind == "dict":
            if not isinstance(given, dict) or set(given) != {key for key, _ in inside}:
                raise ValueError(
                    f"{self.name}: expected a dict of {[key for key, _ in inside]}, got {given!r}."
                )
            for key, part in inside:
                self._collect(part, given[key], values)
        elif kind in ("list", "tuple"):
            if not isinstance(given, (list, tuple)) or len(given) != len(inside):
                what = "arguments" if structure is self._record["inputs"] else "parts"
                raise ValueError(f"{self.name}: expected {len(inside)} {what}, got {given!r}.")
            for part, value in zip(inside, given):
                self._collect(part, value, values)

    def _fitting(self, place: int, x: TensorLike) -> Tensor:
        spec, shape = self._specs[place], self.input_shapes[place]
        tensor = ops.cast(x if isinstance(x, (Tensor, Variable)) else convert(x), spec.dtype)
        fits = len(tensor.shape) == len(shape) and all(
            n in (None, m) for n, m in zip(shape, tensor.shape)
        )
        if not fits:
            raise ShapeError(
                f"{self.name}: input {place} has the shape {shape}, got {tuple(tensor.shape)}."
            )
        return tensor

    def _sizes(self, tensors: Sequence[Any]) -> tuple[int, ...]:
        results = []
        for several in self._spots:
            sizes = {int(tensors[i].shape[axis]) for i, axis in several}
            if len(sizes) > 1:
                raise ShapeError(
                    f"{self.name}: its inputs must have equally many examples, got "
                    f"{[tuple(t.shape) for t in tensors]}."
                )
            results.extend(sizes)
        return tuple(results)

    def _play(self, *tensors: Any) -> list[Tensor]:
        player = Player(self._record["graph"], self._arrays, self._sizes(tensors))
        held = [ops.convert_to_tensor(v) for v in self._variables]
        return player.run([*tensors, *held], current_engine())

    def __repr__(self) -> str:
        return f"<endpoint {self.name} of {self.input_shapes}>"


def _checked_spots(record: dict[str, Any]) -> list[list[tuple[int, int]]]:
    results = [[(_small(i), _small(a)) for i, a in spots] for spots in record["open"]]
    if not all(results) or len(results) != len(record["sample"]):
        raise ValueError("the open sizes are not those of the signature")
    return results


def _small(number: int) -> int:
    """Return a size or place of a record, checked."""
    if type(number) is not int or not 0 <= number < 4096:
        raise ValueError(f"{number!r} is no size or place in a signature")
    return number


def _numbered(structure: Structure, count: int) -> None:
    """Raise unless a structure is one that `_encode` makes, of tensors below `count`."""
    ((kind, inside),) = structure.items()
    if kind == "tensor" and not _small(inside) < count:
        raise ValueError(f"there is no tensor {inside} of {count}")
    if kind in ("list", "tuple"):
        for part in inside:
            _numbered(part, count)
    elif kind == "dict":
        for key, part in inside:
            if not isinstance(key, str):
                raise ValueError(f"{key!r} is no name")
            _numbered(part, count)
    elif kind not in ("tensor", "plain") or kind == "plain" and not isinstance(inside, _PLAIN):
        raise ValueError(f"{kind!r} is no kind of structure")


def _decode(structure: Structure, values: Sequence[Any]) -> Structure:
    ((kind, inside),) = structure.items()
    if kind == "tensor":
        return values[inside]
    if kind == "dict":
        return {key: _decode(part, values) for key, part in inside}
    if kind in ("list", "tuple"):
        parts = [_decode(part, values) for part in inside]
        return parts if kind == "list" else tuple(parts)
    return inside
