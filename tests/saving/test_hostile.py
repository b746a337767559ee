"""Files made to do harm: each gives one clear error, and nothing of the model changes."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import kerasish as keras
from kerasish import layers
from kerasish.engine.functional import replay


def make() -> Any:
    return keras.Sequential([keras.Input((4,)), layers.Dense(4, name="a"), layers.Dense(2)])


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.weights.h5"
    make().save_weights(path)
    return path


def assert_refused(path: Path, match: str) -> None:
    model = make()
    before = [v.numpy().copy() for v in model.weights]
    with pytest.raises((ValueError, OSError), match=match) as error:
        model.load_weights(path)
    assert path.name in str(error.value)
    for now, then in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(now.numpy(), then)


# --- HDF5 --------------------------------------------------------------------------------------


def test_external_links_are_refused(weights: Path, tmp_path: Path) -> None:
    # CVE-2026-1669: external links in .weights.h5 read other files of the machine.
    with h5py.File(tmp_path / "secret.h5", "w") as other:
        other["0"] = np.zeros((4, 4), "float32")
    with h5py.File(weights, "a") as file:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars/0"] = h5py.ExternalLink("secret.h5", "/0")
    assert_refused(weights, "link to another place")


def test_external_groups_are_refused(weights: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "secret.h5", "w") as other:
        other["vars/0"] = np.zeros((4, 4), "float32")
    with h5py.File(weights, "a") as file:
        del file["layers/dense"]
        file["layers/dense"] = h5py.ExternalLink("secret.h5", "/")
    assert_refused(weights, "link to another place")


def test_soft_links_are_refused(weights: Path) -> None:
    with h5py.File(weights, "a") as file:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars/0"] = h5py.SoftLink("/layers/dense/vars/1")
    assert_refused(weights, "link to another place")


def test_raw_storage_elsewhere_is_refused(weights: Path, tmp_path: Path) -> None:
    # CVE-2026-1669: a dataset whose bytes are those of any other file.
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(64))
    with h5py.File(weights, "a") as file:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars"].create_dataset(
            "0", (4, 4), "float32", external=[(str(secret), 0, 64)]
        )
    assert_refused(weights, "another file")


def test_virtual_datasets_are_refused(weights: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "secret.h5", "w") as other:
        other["x"] = np.zeros((4, 4), "float32")
    layout = h5py.VirtualLayout((4, 4), "float32")
    layout[:] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "x", (4, 4))
    with h5py.File(weights, "a") as file:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars"].create_virtual_dataset("0", layout)
    assert_refused(weights, "another file")


@pytest.mark.parametrize("options", [{}, {"chunks": (1024, 1024), "compression": "gzip"}])
def test_declared_sizes_that_the_file_does_not_hold_are_refused(
    weights: Path, options: dict[str, Any]
) -> None:
    # CVE-2026-0897: a shape of petabytes in a file of kilobytes.
    with h5py.File(weights, "a") as file:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars"].create_dataset("0", (2**22, 2**22), "float32", **options)
    assert_refused(weights, "bytes")


def test_a_circle_of_groups_is_refused(weights: Path) -> None:
    with h5py.File(weights, "a") as file:
        file["layers/dense/again"] = file["layers"]
    assert_refused(weights, "without end")


def test_text_instead_of_numbers_is_refused(weights: Path) -> None:
    with h5py.File(weights, "a") as file:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars/0"] = np.array([[b"x"] * 4] * 4)
    assert_refused(weights, "no numbers")


def test_each_flipped_bit_of_an_array_is_named(weights: Path) -> None:
    with h5py.File(weights) as file:
        offset = file["layers/dense_1/vars/0"].id.get_offset()
    data = bytearray(weights.read_bytes())
    data[offset + 5] ^= 1
    weights.write_bytes(bytes(data))
    assert_refused(weights, "layers/dense_1/vars/0")


# --- archives ----------------------------------------------------------------------------------


def archive_members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {n: archive.read(n) for n in archive.namelist()}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "model.keras"
    make().save(path)
    return path


def rewrite(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as created:
        for name, data in members.items():
            created.writestr(name, data)


def refused(path: Path, match: str, **options: Any) -> None:
    with pytest.raises((ValueError, OSError), match=match) as error:
        keras.saving.load_model(path, **options)
    assert path.name in str(error.value)


def with_config(path: Path, change: Any) -> None:
    members = archive_members(path)
    config = json.loads(members["config.json"])
    created = change(config)
    members["config.json"] = json.dumps(config if created is None else created).encode()
    rewrite(path, members)


def test_deflated_members_are_read(archive: Path) -> None:
    rewrite(archive, archive_members(archive), zipfile.ZIP_DEFLATED)
    assert keras.saving.load_model(archive).count_params() == 30


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "C:\\evil", "..\\evil"])
def test_members_that_point_outside_are_refused(archive: Path, name: str) -> None:
    # CVE-2025-12638: paths that leave the folder into which an archive is unpacked.
    rewrite(archive, {**archive_members(archive), name: b"x"})
    refused(archive, "outside the archive")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused(archive: Path) -> None:
    members = archive_members(archive)
    with zipfile.ZipFile(archive, "a") as created:
        created.writestr("config.json", members["config.json"])
    refused(archive, "two members")


def test_a_member_that_unpacks_without_end_is_refused(archive: Path) -> None:
    members = archive_members(archive)
    members["config.json"] = b" " * (2**28 + 1)
    rewrite(archive, members, zipfile.ZIP_DEFLATED)
    refused(archive, r"config\.json")


@pytest.mark.parametrize("name", ["config.json", "model.weights.h5"])
def test_a_missing_member_is_named(archive: Path, name: str) -> None:
    members = archive_members(archive)
    del members[name]
    rewrite(archive, members)
    refused(archive, name)


def test_a_flipped_bit_in_the_config_is_found(archive: Path) -> None:
    data = archive.read_bytes()
    at = data.index(b'"class_name"')
    archive.write_bytes(data[:at] + b"'" + data[at + 1 :])
    refused(archive, r"config\.json")


@pytest.mark.parametrize(
    "config",
    [
        b"[" * 100_000,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b"\xff\xfe",
        b"{",
        b"[]",
        b"3",
        b'{"class_name": "Dense"}',
        b'{"class_name": 7, "config": {}}',
        b'{"class_name": ["Dense"], "config": {}}',
        b'{"class_name": "Sequential", "config": {"layers": 3}}',
        b'{"class_name": "Sequential", "config": {"layers": [{"class_name": "Dense"}]}}',
        b'{"class_name": "Adam", "config": {"learning_rate": 0.1}, "module": "keras.optimizers"}',
        b'{"class_name": "Functional", "config": {"layers": [], "input_layers": [], '
        b'"output_layers": []}}',
    ],
)
def test_configs_that_say_nonsense_are_refused(archive: Path, config: bytes) -> None:
    rewrite(archive, {**archive_members(archive), "config.json": config})
    refused(archive, r"config\.json")


def test_a_weight_larger_than_the_file_is_refused(archive: Path) -> None:
    def change(config: Any) -> None:
        config["config"]["layers"][1]["config"]["units"] = 2**40

    with_config(archive, change)
    refused(archive, "more than the file holds")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("subprocess", "Popen"),
        ("builtins", "eval"),
        ("keras.src.utils.file_utils", "get_file"),
        ("keras.utils", "get_file"),
        ("numpy", "load"),
    ],
)
@pytest.mark.parametrize("safe_mode", [True, False])
def test_nothing_is_imported_by_name(
    archive: Path, module: str, name: str, safe_mode: bool
) -> None:
    # CVE-2025-1550, CVE-2025-8747, CVE-2025-9906: config.json names any function of any module.
    def change(config: Any) -> None:
        config["config"]["layers"][1]["config"]["activation"] = {
            "module": module, "class_name": "function", "config": name, "registered_name": name,
        }  # fmt: skip

    with_config(archive, change)
    refused(archive, name, safe_mode=safe_mode)


@pytest.mark.parametrize("safe_mode", [True, False])
def test_byte_code_is_refused(archive: Path, safe_mode: bool) -> None:
    # CVE-2024-3660, CVE-2025-9905: marshaled lambdas.
    code = {"class_name": "__lambda__", "config": {"code": "4wEAAAA=", "defaults": None}}

    def change(config: Any) -> None:
        config["config"]["layers"][1] = {
            "module": "keras.layers", "class_name": "Lambda", "registered_name": None,
            "config": {"name": "evil", "function": code, "arguments": {}},
        }  # fmt: skip

    with_config(archive, change)
    refused(archive, "byte code|lambda|runs no code", safe_mode=safe_mode)


def test_safe_mode_cannot_be_switched_off_by_a_file(archive: Path) -> None:
    # CVE-2025-9906: a config that calls enable_unsafe_deserialization.
    def change(config: Any) -> None:
        config["config"]["layers"].insert(1, {
            "module": "keras.config", "class_name": "function",
            "config": "enable_unsafe_deserialization", "registered_name": "function",
        })  # fmt: skip

    with_config(archive, change)
    refused(archive, "enable_unsafe_deserialization")


def test_legacy_byte_code_is_refused(tmp_path: Path) -> None:
    # CVE-2025-9905: safe_mode did not reach .h5 files.
    path = tmp_path / "model.h5"
    make().save(path)
    with h5py.File(path, "a") as file:
        config = json.loads(file.attrs["model_config"])
        config["config"]["layers"][1] = {
            "class_name": "Lambda",
            "config": {
                "name": "evil", "function": ["4wEAAAA=", None, None],
                "function_type": "lambda", "module": "__main__",
            },
        }  # fmt: skip
        file.attrs["model_config"] = json.dumps(config)
    refused(path, r"model\.h5")


def test_legacy_links_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    make().save(path)
    with h5py.File(tmp_path / "secret.h5", "w") as other:
        other["kernel"] = np.zeros((4, 4), "float32")
    with h5py.File(path, "a") as file:
        name = file["model_weights/a"].attrs["weight_names"][0]
        del file["model_weights/a"][name]
        file["model_weights/a"][name] = h5py.ExternalLink("secret.h5", "/kernel")
    refused(path, "link to another place")


def test_an_op_called_on_no_tensor_is_refused(archive: Path) -> None:
    source = keras.Input((4,))
    model = keras.Model(source, source + 1.0)
    model.save(archive)

    def change(config: Any) -> None:
        entry = config["config"]["layers"][1]
        entry.update(module="keras.src.ops.numpy", class_name="Full")
        entry["config"] = {"name": entry["name"], "shape": [2**40]}
        entry["inbound_nodes"] = [{"args": [1.0], "kwargs": {}}]

    with_config(archive, change)
    refused(archive, "on no tensor")


def test_no_zip_and_no_hdf5_are_named(tmp_path: Path) -> None:
    for name in ("a.keras", "a.h5"):
        (tmp_path / name).write_bytes(io.BytesIO(b"hello").read())
        refused(tmp_path / name, "not a whole")
        (tmp_path / name).write_bytes(b"")
        refused(tmp_path / name, "not a whole")


def test_attributes_of_other_types_are_refused_unread(tmp_path: Path) -> None:
    # A flipped bit makes a list of texts one of sequences, and HDF5 itself crashes reading it.
    path = tmp_path / "model.h5"
    make().save(path)
    with h5py.File(path, "a") as file:
        names = np.empty(2, dtype=object)
        names[:] = [np.zeros(3, "int8"), np.zeros(2, "int8")]
        file["model_weights"].attrs.create("layer_names", names, dtype=h5py.vlen_dtype("int8"))
    refused(path, "layer_names")


# --- cheap to write, expensive to read ----------------------------------------------------------


@pytest.mark.parametrize("kind", ["__tensor__", "__numpy__"])
@pytest.mark.parametrize("dtype", ["S2000000000", "<U900000000", "V999999999", "object", 7, None])
def test_arrays_of_no_numbers_are_refused(archive: Path, kind: str, dtype: Any) -> None:
    def change(config: Any) -> None:
        value = {"class_name": kind, "config": {"value": 0, "dtype": dtype}}
        config["config"]["layers"][1]["config"]["units"] = value

    with_config(archive, change)
    tracemalloc.start()
    refused(archive, "An array of numbers is of one of")
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "complex64", "bool", "uint8"])
def test_arrays_of_numbers_are_read(dtype: str) -> None:
    created = {"class_name": "__numpy__", "config": {"value": [1, 0], "dtype": dtype}}
    result = keras.saving.deserialize_keras_object(created)
    assert result.dtype.name == dtype
    assert result.tolist() == [1, 0]


@pytest.mark.parametrize("filling", [b" ", b'"'])
def test_a_config_that_unpacks_to_much_is_refused(archive: Path, filling: bytes) -> None:
    members = archive_members(archive)
    long = b" " * 2**26 if filling == b" " else b'"' + b"a" * 2**26 + b'"'
    rewrite(archive, {**members, "config.json": long}, zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    refused(archive, "are refused")
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_more_layers_than_any_model_has_are_refused(archive: Path) -> None:
    def change(config: Any) -> None:
        flat = {"class_name": "Flatten", "config": {}}
        config["config"]["layers"] = [flat] * 20_000

    with_config(archive, change)
    refused(archive, "20000 layers")


def test_calls_in_reverse_order_take_linear_time(archive: Path) -> None:
    count = 2000
    entries = [
        {
            "class_name": "InputLayer", "name": "0",
            "config": {"batch_shape": [None, 3], "name": "0"}, "inbound_nodes": [],
        },
        *(
            {
                "class_name": "Activation", "name": str(i),
                "config": {"name": str(i), "activation": "relu"},
                "inbound_nodes": [{"args": [tensor(str(i - 1), 0, 0)], "kwargs": {}}],
            }
            for i in range(1, count)
        ),
    ]  # fmt: skip
    config = {"layers": entries[::-1], "input_layers": ["0", 0, 0]}
    config["output_layers"] = [str(count - 1), 0, 0]
    read = Counter[str]()
    original = replay.read_node

    def counted(node: Any, results: Any) -> Any:
        read["nodes"] += 1
        return original(node, results)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "read_node", counted)
        model = keras.Model.from_config(config)
    assert len(model.layers) == count
    assert read["nodes"] == count - 1


def tensor(name: str, number: Any, index: Any) -> dict[str, Any]:
    config = {"shape": [None, 3], "dtype": "float32", "keras_history": [name, number, index]}
    return {"class_name": "__keras_tensor__", "config": config}


# --- what means nothing --------------------------------------------------------------------------


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "graph.keras"
    x = keras.Input((4,), name="x")
    model = keras.Model(x, layers.Dense(2, name="d")(x))
    model.compile("sgd", "mse", metrics=["mae", "accuracy"])
    model.save(path)
    return path


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("number", [0.0, True, False, -1, "0", None])
@pytest.mark.parametrize("place", ["call", "output"])
def test_a_place_in_a_graph_is_two_whole_numbers(
    graph: Path, which: int, number: Any, place: str
) -> None:
    def change(config: Any) -> None:
        inner = config["config"]
        node = inner["layers"][1]["inbound_nodes"][0]["args"][0]["config"]["keras_history"]
        (node if place == "call" else inner["output_layers"])[which] = number

    with_config(graph, change)
    refused(graph, "The config")


def test_an_entry_of_a_layer_needs_its_name(graph: Path) -> None:
    with_config(graph, lambda config: config["config"]["layers"][1].pop("name") and None)
    refused(graph, "without its name")


@pytest.mark.parametrize("key", ["loss", "metrics", "weighted_metrics"])
def test_names_of_losses_and_metrics_are_known(graph: Path, key: str) -> None:
    def change(config: Any) -> None:
        config["compile_config"][key] = "__import__" if key == "loss" else ["mse", "__import__"]

    with_config(graph, change)
    refused(graph, "__import__")
    assert keras.saving.load_model(graph, compile=False).count_params() == 10


@pytest.mark.parametrize(
    ("dtype", "match"), [("complex64", "dtype .*float32 +complex64"), ("complex128", "complex128")]
)
def test_complex_numbers_are_no_weights_of_real_ones(weights: Path, dtype: str, match: str) -> None:
    with h5py.File(weights, "a") as file:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars/0"] = np.ones((4, 4), dtype)
    assert_refused(weights, match)


@pytest.mark.parametrize("number", [1.5, np.nan, 2.0**40])
def test_numbers_that_are_not_whole_are_no_counts(number: float, tmp_path: Path) -> None:
    path = tmp_path / "a.weights.h5"
    model = make()
    model.compile("sgd", "mse")
    model.optimizer.build(model.trainable_variables)
    model.save_weights(path)
    for right in (3.0, number):
        with h5py.File(path, "a") as file:
            del file["optimizer/vars/0"]
            file["optimizer/vars/0"] = np.float64(right)
        if right == 3.0:
            model.load_weights(path)
            assert int(model.optimizer.iterations.numpy()) == 3
    with pytest.raises(ValueError, match=r"a\.weights\.h5.*optimizer/vars/0.*are no int"):
        model.load_weights(path)
    assert int(model.optimizer.iterations.numpy()) == 3
