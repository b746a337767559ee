"""ONNX files from strangers: damaged and malicious ones are refused, in bounded time and memory."""

from __future__ import annotations

import contextlib
import signal
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import layers
from kerasish.export.onnx.reading.wire import check_bounds
from kerasish.saving import load_onnx

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
from onnx import TensorProto, helper  # noqa: E402


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise TimeoutError where the block takes longer."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def models(folder: Path) -> list[bytes]:
    """Return files that use convolutions, recurrences, loops and sizes that are computed."""
    x = kerasish.Input((8, 8, 3))
    y = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    y = layers.Dense(5)(layers.Flatten()(layers.UpSampling2D(interpolation="bilinear")(y)))
    image = kerasish.Model(x, y)
    s = kerasish.Input((None,), dtype="int32")
    z = layers.LSTM(4, return_sequences=True)(layers.Embedding(7, 3)(s))
    z = layers.LayerNormalization()(layers.MultiHeadAttention(2, 2)(z, z))
    text = kerasish.Model(s, layers.GRU(3)(z))
    result = []
    for i, model in enumerate((image, text)):
        model.export(folder / f"{i}.onnx", verbose=False, verify=False)
        result.append((folder / f"{i}.onnx").read_bytes())
    x = kerasish.Input((4,), dtype="int64")
    lookup = layers.IntegerLookup(vocabulary=[3, 9, -2], num_oov_indices=2, output_mode="count")
    kerasish.Model(x, lookup(x)).export(folder / "2.onnx", verbose=False, verify=False)
    return [*result, looping(), quantized(), (folder / "2.onnx").read_bytes()]


def looping() -> bytes:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "one"], ["next"]),
            helper.make_node("Identity", ["going"], ["go_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [2]),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [2]),
        ],
        [helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])],
    )
    nodes = [
        helper.make_node("Loop", ["most", "", "x"], ["y"], body=body),
        helper.make_node("ConstantOfShape", ["sizes"], ["zeros"]),
        helper.make_node("Concat", ["y", "zeros"], ["z"], axis=0),
    ]
    stored = [
        helper.make_tensor("most", TensorProto.INT64, [], [5]),
        helper.make_tensor("sizes", TensorProto.INT64, [1], [3]),
    ]
    return small(nodes, [2], stored)


def quantized() -> bytes:
    """Weights of 4 bits in groups of 2 rows."""
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "n"], ["f"], axis=0, block_size=2),
        helper.make_node("MatMul", ["x", "f"], ["z"]),
    ]
    stored = [
        helper.make_tensor("w", TensorProto.INT4, [4, 3], list(range(-6, 6))),
        helper.make_tensor("n", TensorProto.INT4, [2, 3], [0, 1, 2, -1, 0, 3]),
        helper.make_tensor("s", TensorProto.FLOAT, [2, 3], [0.5] * 6),
    ]
    return small(nodes, [2, 4], stored, opset=21)


def small(
    nodes: list[Any], shape: list[int], stored: list[Any], out: str = "z", opset: int = 18
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)],
        stored,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return bytes(proto.SerializeToString())


def mutated(data: bytes, rng: Any) -> bytes:
    """Return a file with some bytes changed, cut, doubled or exchanged."""
    content = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        at, size = int(rng.integers(len(content))), int(rng.integers(1, 9))
        how = rng.integers(6)
        if how == 0:
            content[at] ^= 1 << int(rng.integers(8))
        elif how == 1:
            content[at] = int(rng.choice([0, 1, 127, 128, 255]))
        elif how == 2:
            del content[at : at + size]
        elif how == 3:
            content[at:at] = content[at : at + size]
        elif how == 4:
            content[at : at + size] = rng.bytes(size)
        else:
            del content[at:]
        if not content:
            content = bytearray(b"\0")
    return bytes(content)


def try_it(path: Path, seconds: int = 10) -> str:
    """Return whether a file was "loaded" or "refused"; other errors are raised."""
    with within(seconds):
        try:
            model = load_onnx(path)
            shapes = [t.shape for t in model.inputs]
            sizes = [[3 if s is None else int(s) for s in shape] for shape in shapes]
            if sum(int(np.prod(s, dtype="float64")) for s in sizes) < 10_000:
                zeros = [np.zeros(s, t.dtype) for s, t in zip(sizes, model.inputs)]
                model(zeros[0] if len(zeros) == 1 else zeros)
        except (ValueError, OSError, TypeError):
            return "refused"
    return "loaded"


def campaign(folder: Path, count: int, seed: int) -> dict[str, int]:
    rng, sources, counts = np.random.default_rng(seed), models(folder), {"loaded": 0, "refused": 0}
    path = folder / "damaged.onnx"
    for i in range(count):
        path.write_bytes(mutated(sources[i % len(sources)], rng))
        counts[try_it(path)] += 1
    return counts


def test_damaged_files(tmp_path: Path) -> None:
    counts = campaign(tmp_path, 150, 1)
    assert counts["refused"] > 30 and counts["loaded"] > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_5000_damaged_files(tmp_path: Path) -> None:
    counts = campaign(tmp_path, 5000, 2)
    assert sum(counts.values()) == 5000 and counts["refused"] > 1000


def refused(path: Path, data: bytes, message: str) -> None:
    path.write_bytes(data)
    with within(10), pytest.raises(ValueError, match=message):
        load_onnx(path)


def test_sizes_that_a_file_has_not(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "w"], ["z"])
    huge = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**40], raw_data=b"1234")
    refused(tmp_path / "a", small([node], [2], [huge]), "'w' has the shape")
    short = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[7], raw_data=b"1234")
    refused(tmp_path / "a", small([node], [2], [short]), "has 4 bytes, not 28")


def test_tensors_that_would_be_too_large(tmp_path: Path) -> None:
    sizes = helper.make_tensor("sizes", TensorProto.INT64, [3], [2**20, 2**20, 2**20])
    for kind, inputs in (("ConstantOfShape", ["sizes"]), ("Expand", ["one", "sizes"])):
        one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
        data = small([helper.make_node(kind, inputs, ["z"])], [2], [sizes, one])
        tracemalloc.start()
        refused(tmp_path / "a", data, "would be made")
        assert tracemalloc.get_traced_memory()[1] < 2**26
        tracemalloc.stop()


def test_loops_that_do_not_end(tmp_path: Path) -> None:
    proto = onnx.ModelProto.FromString(looping())
    proto.graph.initializer[0].CopyFrom(helper.make_tensor("most", TensorProto.INT64, [], [2**60]))
    refused(tmp_path / "a", proto.SerializeToString(), "steps would be run")


@pytest.mark.slow
def test_nesting_and_fields_are_bounded() -> None:
    inside = b""
    for _ in range(200):
        node = b"\x2a" + length(b"\x32" + length(inside))
        inside = b"\x0a" + length(node)
    with pytest.raises(ValueError, match="nest"):
        check_bounds(b"\x3a" + length(inside))
    with within(10), pytest.raises(ValueError, match="more than 3,000,000 fields"):
        check_bounds(b"\x3a" + length(b"\x0a\x00" * 3_100_000))


def length(data: bytes) -> bytes:
    size, out = len(data), b""
    while size > 127:
        out, size = out + bytes([size & 127 | 128]), size >> 7
    return out + bytes([size]) + data


def external(location: str, offset: int = 0, size: int = 8) -> bytes:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": offset, "length": size}.items():
        tensor.external_data.add(key=key, value=str(value))
    return small([helper.make_node("Add", ["x", "w"], ["z"])], [2], [tensor])


def test_external_data_lies_beside_the_file(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "outside").write_bytes(np.float32([1, 2]).tobytes())
    (inner / "beside").write_bytes(np.float32([1, 2]).tobytes())
    (inner / "link").symlink_to(tmp_path / "outside")
    for location in ("../outside", str(tmp_path / "outside"), "..", "", "sub/../beside"):
        refused(inner / "a", external(location), "beside the model only")
    refused(inner / "a", external("link"), "needs the file")
    refused(inner / "a", external("absent"), "needs the file")
    refused(inner / "a", external("beside", offset=4), "does not have them")
    refused(inner / "a", external("beside", offset=-8), "does not have them")
    (inner / "a").write_bytes(external("beside"))
    np.testing.assert_array_equal(load_onnx(inner / "a")(np.zeros(2, "float32")), [1, 2])


def test_no_onnx_at_all(tmp_path: Path) -> None:
    refused(tmp_path / "a", b"\x93NUMPY" * 100, ".")
    refused(tmp_path / "a", b"", "no outputs")
    with pytest.raises(OSError, match="absent"):
        load_onnx(tmp_path / "absent")
