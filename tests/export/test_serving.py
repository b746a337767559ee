"""The programs of the page on serving: a model repository, and a service that batches requests."""

from __future__ import annotations

import importlib.util
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import layers

SERVING = Path(__file__).parents[2] / "examples" / "serving"


def program(name: str) -> Any:
    """Return a program of the folder as a module."""
    spec = importlib.util.spec_from_file_location(name, SERVING / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model_of_two() -> Any:
    x, ids = kerasish.Input((4,), name="facts"), kerasish.Input((None,), dtype="int32", name="ids")
    words = layers.GlobalAveragePooling1D()(layers.Embedding(9, 3)(ids))
    y = layers.Dense(5, activation="softmax", name="kind")(layers.Concatenate()([x, words]))
    return kerasish.Model([x, ids], [y, layers.Dense(1, name="size")(x)])


def message() -> Any:
    """Return the part of Triton's ModelConfig that is written, as a message."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="config.proto", package="inference")
    kinds = file.enum_type.add(name="DataType")
    for i, kind in enumerate(("INVALID", "FP32", "INT32")):
        kinds.value.add(name=f"TYPE_{kind}", number=i)
    string, number, nested, enum = 9, 3, 11, 14

    def declare(name: str, fields: dict[str, Any]) -> None:
        declared = file.message_type.add(name=name)
        for i, (field, (kind, many, type_)) in enumerate(fields.items()):
            declared.field.add(
                name=field, number=i + 1, type=kind, label=3 if many else 1, type_name=type_
            )

    declare("Port", {
        "name": (string, False, None), "data_type": (enum, False, ".inference.DataType"),
        "dims": (number, True, None),
    })  # fmt: skip
    declare("Batching", {"max_queue_delay_microseconds": (number, False, None)})
    declare("Config", {
        "name": (string, False, None), "platform": (string, False, None),
        "max_batch_size": (number, False, None), "input": (nested, True, ".inference.Port"),
        "output": (nested, True, ".inference.Port"),
        "dynamic_batching": (nested, False, ".inference.Batching"),
    })  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("inference.Config"))()


def test_a_model_repository_is_what_the_server_expects(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from google.protobuf import text_format

    model = model_of_two()
    program("triton_repository").write_repository(model, tmp_path, "two", max_batch_size=8)
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == [
        "two/1/model.onnx", "two/config.pbtxt",
    ]  # fmt: skip
    config = text_format.Parse((tmp_path / "two/config.pbtxt").read_text(), message())
    assert (config.name, config.platform, config.max_batch_size) == ("two", "onnxruntime_onnx", 8)
    ports = [(p.name, p.data_type, list(p.dims)) for p in (*config.input, *config.output)]
    assert ports == [("facts", 1, [4]), ("ids", 2, [-1]), ("kind", 1, [5]), ("size", 1, [1])]
    assert config.dynamic_batching.max_queue_delay_microseconds == 2000
    session = runtime.InferenceSession(str(tmp_path / "two/1/model.onnx"))
    assert [p.name for p in session.get_inputs()] == [p.name for p in config.input]
    assert [p.name for p in session.get_outputs()] == [p.name for p in config.output]
    rng = np.random.default_rng(0)
    for rows, length in ((1, 3), (8, 6)):
        x = rng.normal(size=(rows, 4)).astype("float32")
        ids = rng.integers(0, 9, (rows, length)).astype("int32")
        results = session.run(None, {"facts": x, "ids": ids})
        for result, expected in zip(results, model.predict([x, ids], verbose=0), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Any]:
    """Return the model, the service's module, and what makes a client for its application."""
    pytest.importorskip("fastapi", reason="fastapi is not installed")
    pytest.importorskip("httpx", reason="httpx, which fastapi's test client needs, is missing")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Starlette may name another HTTP client that it prefers
        from fastapi.testclient import TestClient

    x = kerasish.Input((6,))
    model = kerasish.Model(x, layers.Dense(3, activation="softmax")(layers.Dense(8, "relu")(x)))
    model.export(tmp_path / "model.archive", verbose=False)
    monkeypatch.setenv("MODEL", str(tmp_path / "model.archive"))
    return model, program("fastapi_service"), TestClient


def test_the_service_batches_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, module, TestClient = service(tmp_path, monkeypatch)  # noqa: N806 (a class)
    monkeypatch.setattr(module, "WAIT", 0.2)
    sizes: list[int] = []
    load = module.load_archive
    fails = [False]

    class Counting:
        """The archive's endpoint, which notes how often it is called."""

        def __init__(self, path: str) -> None:
            self.serve = self
            self.endpoint = load(path).serve
            self.input_shapes = self.endpoint.input_shapes

        def __call__(self, x: Any) -> Any:
            sizes.append(len(x))
            if fails[0]:
                raise ValueError("out of order")
            return self.endpoint(x)

    monkeypatch.setattr(module, "load_archive", Counting)
    rows = np.random.default_rng(1).normal(size=(40, 6)).astype("float32")
    replies: list[Any] = [None] * len(rows)
    with TestClient(module.app) as client:

        def ask(i: int) -> None:
            replies[i] = client.post("/predict", json=rows[i].tolist())

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(rows))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert set(sizes) == {module.LARGEST} and 3 <= len(sizes) < 20  # one more compiles
        fails[0] = True
        with pytest.raises(ValueError, match="out of order"):
            client.post("/predict", json=rows[0].tolist())
        fails[0] = False
        assert client.post("/predict", json=rows[0].tolist()).status_code == 200
    assert [r.status_code for r in replies] == [200] * len(rows)
    results = np.array([r.json() for r in replies])
    np.testing.assert_allclose(results, model.predict(rows, verbose=0), rtol=1e-5, atol=1e-6)


def test_the_service_refuses_other_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, module, TestClient = service(tmp_path, monkeypatch)  # noqa: N806 (a class)
    with TestClient(module.app) as client:
        for body, words in (([1.0, 2.0], "got (2,)"), (["a"] * 6, "numbers of shape (6,)")):
            reply = client.post("/predict", json=body)
            assert reply.status_code == 422 and words in reply.json()["detail"]
        assert client.post("/predict", content=b"{").status_code == 422
        assert client.post("/predict", json=[0.0] * 6).status_code == 200
