"""From the bytes of an ONNX file to plain records and arrays, everything checked on the way.

A record is what JSON can hold: it becomes the config of the layer that runs the graph. Larger float
initializers become separate arrays, the layer's weights.
"""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.export.onnx.fuse import graphs_of
from kerasish.export.onnx.package import need_onnx
from kerasish.export.onnx.reading.narrow import NARROW, bytes_of, widened
from kerasish.export.onnx.reading.registry import CONSTANT_INPUTS, FIXED_WEIGHTS, READERS
from kerasish.export.onnx.reading.wire import check_bounds
from kerasish.ops import dtypes

Record = dict[str, Any]
MOST_BYTES = 2**31 - 1
MOST_ELEMENTS = 2**31
OLDEST_OPSET, FAMILIES = 1, ("", "ai.onnx")
_WORDS = {"FLOAT": "float32", "DOUBLE": "float64"}
_NATIVE = frozenset(
    ["float16", "float32", "float64", "bfloat16", "bool", "int8", "int16", "int32", "int64"]
    + ["uint8", "uint16", "uint32", "uint64"]
)


class Parsed(NamedTuple):
    """What a file holds.

    Attributes:
        record: the graph, as JSON can hold it.
        arrays: name -> the array of each weight.
    """

    record: Record
    arrays: dict[str, Any]


def read_file(path: str) -> Parsed:
    """Return the content of an ONNX file.

    Raises:
        ValueError: it is damaged, too large, or uses what is not known.
        OSError: it cannot be read.
    """
    size = os.path.getsize(path)
    if size > MOST_BYTES:
        raise ValueError(f"it has {size:,} bytes; protobuf files have at most {MOST_BYTES:,}")
    with open(path, "rb") as file:
        data = file.read(size)
    return parse(data, os.path.dirname(os.path.abspath(path)))


def parse(data: bytes, folder: str | None = None) -> Parsed:
    """Return the content of an ONNX file's bytes.

    Args:
        data: the bytes.
        folder: the folder of external data; None: there is none.

    Raises:
        ValueError: as for `read_file`.
    """
    onnx = need_onnx("saving.load_onnx")
    check_bounds(data)
    from google.protobuf.message import DecodeError

    try:
        proto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise ValueError(f"its bytes are no ONNX model: {error}") from error
    return Reader(onnx, folder).model(proto)


class Reader:
    """Turns protobuf messages into records.

    Args:
        onnx: the package.
        folder: the folder of external data.
    """

    def __init__(self, onnx: Any, folder: str | None = None) -> None:
        self.onnx, self.folder = onnx, folder
        self.opsets: dict[str, int] = {}
        self.functions: dict[tuple[str, str], Any] = {}
        self.arrays: dict[str, Any] = {}
        self.expanded = 0

    def model(self, proto: Any) -> Parsed:
        """Return the record of a model."""
        for entry in proto.opset_import:
            self.opsets["" if entry.domain in FAMILIES else entry.domain] = entry.version
        version = self.opsets.get("")
        if version is not None and not OLDEST_OPSET <= version <= 1000:
            raise ValueError(f"it is of opset {version}; {OLDEST_OPSET} and later are read")
        for function in proto.functions:
            self.functions[_domain(function.domain), function.name] = function
        record = self.graph(proto.graph, outermost=True)
        record["opsets"] = self.opsets
        return Parsed(record, self.arrays)

    def graph(self, graph: Any, outermost: bool = False) -> Record:
        """Return the record of a graph; weights are kept of the outermost one only."""
        nodes: list[Any] = []
        for node in graph.node:
            nodes.extend(self.nodes(node))
        constants: Record = {}
        weights: list[Any] = []
        readers = _readers(nodes)
        for tensor in graph.initializer:
            array = self.array(tensor, readers.get(tensor.name, ()))
            if outermost and _is_weight(array, readers.get(tensor.name, [])):
                fixed = any(r in FIXED_WEIGHTS for r in readers.get(tensor.name, []))
                dtype = dtypes.name_of(array.dtype)
                weights.append([tensor.name, dtype, list(array.shape), not fixed])
                self.arrays[tensor.name] = array
            else:
                constants[tensor.name] = encode(array)
        if graph.sparse_initializer:
            raise ValueError("sparse initializers are not read")
        stored = {*constants, *self.arrays}
        return {
            "name": graph.name or "graph",
            "inputs": [self.value(v, outermost) for v in graph.input if v.name not in stored],
            "outputs": [v.name for v in graph.output],
            "constants": constants,
            "weights": weights,
            "nodes": nodes,
        }

    def value(self, info: Any, need_type: bool) -> list[Any]:
        """Return [name, dtype, shape] of a graph's input; open sizes are None."""
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            if need_type:
                raise ValueError(f"the input {info.name!r} is a {kind or 'value without type'}")
            return [info.name, None, None]
        tensor = info.type.tensor_type
        dtype = self.dtype(tensor.elem_type) if tensor.elem_type or need_type else None
        if not tensor.HasField("shape"):
            return [info.name, dtype, None]
        sizes = [
            d.dim_value if d.WhichOneof("value") == "dim_value" and d.dim_value > 0 else None
            for d in tensor.shape.dim
        ]
        zero = [d.WhichOneof("value") == "dim_value" and d.dim_value == 0 for d in tensor.shape.dim]
        return [info.name, dtype, [0 if z else s for z, s in zip(zero, sizes)]]

    def dtype(self, code: int) -> str:
        """Return the dtype of ONNX's number."""
        word = self._word(code)
        name = _WORDS.get(word, word.lower())
        if name not in _NATIVE:
            raise ValueError(f"tensors of {name} are not read")
        return name

    def _word(self, code: int) -> str:
        try:
            return str(self.onnx.TensorProto.DataType.Name(code))
        except ValueError as error:
            raise ValueError(f"there is no dtype {code}") from error

    # --- nodes -------------------------------------------------------------------------------

    def nodes(self, node: Any, depth: int = 0) -> list[Any]:
        """Return the records of a node; of a function's, those of its body."""
        domain = _domain(node.domain)
        attrs = {a.name: self.attribute(a, node) for a in node.attribute if not a.ref_attr_name}
        if (domain, node.op_type) in READERS:
            return [[domain, node.op_type, list(node.input), list(node.output), attrs]]
        body = self.functions.get((domain, node.op_type)) or self._schema_body(node)
        if body is None:
            where = f"{domain}." if domain else ""
            raise ValueError(f"the operator {where}{node.op_type} is not known")
        return self._inlined(node, body, depth)

    def _schema(self, node: Any) -> Any:
        """Return what ONNX says of an operator; None: nothing."""
        defs, domain = self.onnx.defs, _domain(node.domain)
        try:
            return defs.get_schema(node.op_type, self.opsets.get(domain, 1), domain)
        except defs.SchemaError:
            return None

    def _schema_body(self, node: Any) -> Any:
        """Return the function by which ONNX defines an operator; None: it has none."""
        schema = self._schema(node)
        return schema.function_body if schema is not None and schema.has_function else None

    def _inlined(self, node: Any, body: Any, depth: int) -> list[Any]:
        self.expanded += 1
        if depth > 16 or self.expanded > 20_000:
            raise ValueError(f"functions nest too deeply at the node {node.name!r}")
        prefix = f"{node.op_type}_{self.expanded}/"
        names = dict(zip(body.input, node.input)) | dict(zip(body.output, node.output))
        names |= dict.fromkeys(list(body.input)[len(node.input) :], "")
        given = {a.name: a for a in node.attribute}
        defaults = {a.name: a for a in body.attribute_proto}
        if not body.attribute_proto:
            defaults = self._schema_defaults(node)
        results: list[Any] = []
        for inner in body.node:
            copy = self.onnx.NodeProto()
            copy.CopyFrom(inner)
            _fill(copy, given, defaults)
            _prefix(copy, names, prefix)
            results.extend(self.nodes(copy, depth + 1))
        return results

    def _schema_defaults(self, node: Any) -> dict[str, Any]:
        schema = self._schema(node)
        known = {} if schema is None else schema.attributes
        return {n: a.default_value for n, a in known.items() if a.default_value.name}

    def attribute(self, a: Any, node: Any) -> Any:
        """Return an attribute's value as JSON can hold it."""
        kinds = self.onnx.AttributeProto
        if a.type == kinds.FLOAT:
            return float(a.f)
        if a.type == kinds.INT:
            return int(a.i)
        if a.type == kinds.STRING:
            return _text(a.s)
        if a.type == kinds.TENSOR:
            return {"tensor": encode(self.array(a.t))}
        if a.type == kinds.GRAPH:
            return {"graph": self.graph(a.g)}
        if a.type == kinds.FLOATS:
            return [float(v) for v in a.floats]
        if a.type == kinds.INTS:
            return [int(v) for v in a.ints]
        if a.type == kinds.STRINGS:
            return [_text(v) for v in a.strings]
        raise ValueError(
            f"the attribute {a.name!r} of {node.op_type} is of a kind that is not read"
        )

    # --- tensors --------------------------------------------------------------------------------

    def array(self, tensor: Any, readers: Sequence[tuple[str, int]] = ()) -> Any:
        """Return the array of a tensor.

        Args:
            tensor: the message.
            readers: (operator, place) of what reads it; `DequantizeLinear` takes narrow dtypes.

        Raises:
            ValueError: the number of its bytes does not match its shape, or they are in a file
                outside the model's folder.
        """
        word = self._word(tensor.data_type)
        narrow = word in NARROW and {kind for kind, _ in readers} == {"DequantizeLinear"}
        dtype = np.dtype("uint8") if narrow else dtypes.array_dtype(self.dtype(tensor.data_type))
        shape = tuple(tensor.dims)
        if any(n < 0 for n in shape) or math.prod(shape) > MOST_ELEMENTS:
            raise ValueError(f"the tensor {tensor.name!r} has the shape {shape}")
        count = bytes_of(word, math.prod(shape)) if narrow else math.prod(shape)
        if tensor.data_location == self.onnx.TensorProto.EXTERNAL:
            data = self._outside(tensor, count * dtype.itemsize)
        elif tensor.HasField("raw_data"):
            data = tensor.raw_data
        else:
            array = _listed(tensor, dtype, count)
            return widened(word, array, shape) if narrow else array.reshape(shape)
        if len(data) != count * dtype.itemsize:
            raise ValueError(
                f"the tensor {tensor.name!r} of shape {shape} has {len(data)} bytes, not "
                f"{count * dtype.itemsize}"
            )
        little = dtype if dtype.itemsize == 1 or dtype.kind == "V" else dtype.newbyteorder("<")
        array = np.frombuffer(data, little)
        return widened(word, array, shape) if narrow else array.astype(dtype).reshape(shape)

    def _outside(self, tensor: Any, size: int) -> bytes:
        """Return the bytes of external data, from a file in the model's folder."""
        place = {entry.key: entry.value for entry in tensor.external_data}
        location = place.get("location", "")
        plain = os.path.basename(location) == location and location not in ("", ".", "..")
        if self.folder is None or not plain or os.sep in location or "\\" in location:
            raise ValueError(
                f"the tensor {tensor.name!r} lies in {location!r}; external data is read from "
                "files beside the model only"
            )
        path = os.path.join(self.folder, location)
        if os.path.islink(path) or not os.path.isfile(path):
            raise ValueError(f"the tensor {tensor.name!r} needs the file {location!r} beside it")
        try:
            offset = int(place.get("offset", "0"))
            length = int(place.get("length", str(size)))
        except ValueError as error:
            raise ValueError(f"the place of the tensor {tensor.name!r} is no number") from error
        if length != size or not 0 <= offset <= os.path.getsize(path) - size:
            raise ValueError(
                f"the tensor {tensor.name!r} needs {size} bytes; {location!r} does not have them "
                "at the place given"
            )
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(size)


def _listed(tensor: Any, dtype: Any, count: int) -> Any:
    """Return the numbers of a tensor whose numbers are fields."""
    kind = dtypes.name_of(dtype)
    field = {"float32": "float_data", "float64": "double_data", "int64": "int64_data"}.get(kind)
    field = field or ("uint64_data" if kind in ("uint32", "uint64") else "int32_data")
    values = getattr(tensor, field)
    if len(values) != count:
        raise ValueError(
            f"the tensor {tensor.name!r} of shape {tuple(tensor.dims)} has {len(values)} numbers, "
            f"not {count}"
        )
    if kind in ("float16", "bfloat16"):
        bits = np.array(values, "int64").astype("uint16")
        return bits.view(dtype)
    wide = np.array(values, "float64" if dtype.kind == "f" else None)
    with np.errstate(all="ignore"):
        return wide.astype(dtype)


def encode(array: Any) -> list[Any]:
    """Return [dtype, shape, base64 text] of an array."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    text = base64.b64encode(array.tobytes()).decode("ascii")
    return [dtypes.name_of(array.dtype), list(array.shape), text]


def decode(parts: Sequence[Any]) -> Any:
    """Return the array of `encode`.

    Raises:
        ValueError: the parts do not fit each other.
    """
    name, shape, text = parts
    if name not in _NATIVE:
        raise ValueError(f"there is no dtype {name!r}")
    if any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"{shape!r} is no shape")
    data = base64.b64decode(text, validate=True)
    dtype = dtypes.array_dtype(name)
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"a constant of shape {shape} has {len(data)} bytes")
    return np.frombuffer(data, dtype).reshape(shape).copy()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _domain(domain: str) -> str:
    return "" if domain in FAMILIES else domain


def _readers(nodes: Sequence[Any]) -> dict[str, list[tuple[str, int]]]:
    """Return value name -> (operator, place) of all that read it."""
    readers: dict[str, list[tuple[str, int]]] = {}
    for _, kind, inputs, _, attrs in nodes:
        for place, name in enumerate(inputs):
            readers.setdefault(name, []).append((kind, place))
        for value in attrs.values():
            if isinstance(value, dict) and "graph" in value:
                for name, several in _readers(value["graph"]["nodes"]).items():
                    readers.setdefault(name, []).extend(several)
    return readers


def _is_weight(array: Any, readers: Sequence[tuple[str, int]]) -> bool:
    """Return whether an initializer is a weight: several floats that decide no shape."""
    if not dtypes.is_float(dtypes.name_of(array.dtype)) or array.size < 2:
        return False
    return not any(r in CONSTANT_INPUTS for r in readers)


def _fill(node: Any, given: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Put the attributes of a function's call in place of references to them."""
    kept = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            source = given.get(attribute.ref_attr_name) or defaults.get(attribute.ref_attr_name)
            if source is None:
                continue
            copy = type(attribute)()
            copy.CopyFrom(source)
            copy.name = attribute.name
            attribute = copy
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                _fill(inner, given, defaults)
        kept.append(attribute)
    filled = [type(a).FromString(a.SerializeToString()) for a in kept]
    node.ClearField("attribute")
    node.attribute.extend(filled)


def _prefix(node: Any, names: dict[str, str], prefix: str) -> None:
    """Give a function's values names of their own, its inputs and outputs those of the call."""
    for field in (node.input, node.output):
        for i, name in enumerate(field):
            if name:
                field[i] = names.get(name, prefix + name)
    for graph in graphs_of(node):
        own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
        inner_names = {k: v for k, v in names.items() if k not in own}
        for inner in graph.node:
            _prefix(inner, inner_names, prefix)
        for value in (*graph.input, *graph.output, *graph.initializer):
            value.name = inner_names.get(value.name, prefix + value.name)
