"""One test for each attack on Keras's loaders that has a number; more of the kind: test_hostile."""

from __future__ import annotations

import io
import json
import pickle
import sys
import tarfile
import types
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import kerasish as keras
from kerasish import layers
from kerasish.datasets.extract import extract_archive

CODE = "4wEAAAAAAAAAAAAAAAEAAAADAAAA"  # begins like marshaled byte code
RAN: list[str] = []  # what an attack that succeeds would fill


def make() -> Any:
    return keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dense(2)])


def archive_with(path: Path, layer: dict[str, Any], weights: bytes | None = None) -> Path:
    """Write a model whose second layer is `layer`."""
    make().save(path)
    with zipfile.ZipFile(path) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    config = json.loads(members["config.json"])
    config["config"]["layers"][1] = layer
    members["config.json"] = json.dumps(config).encode()
    members["model.weights.h5"] = weights or members["model.weights.h5"]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def described(name: str, config: dict[str, Any], module: str = "keras.layers") -> dict[str, Any]:
    return {"module": module, "class_name": name, "config": config, "registered_name": None}


def function(module: str, name: str) -> dict[str, Any]:
    created = described("function", {}, module)
    return {**created, "config": name, "registered_name": "function"}


def lambda_of(what: Any, **config: Any) -> dict[str, Any]:
    return described("Lambda", {"name": "evil", "function": what, "arguments": {}, **config})


def refused(path: Path, match: str, **options: Any) -> None:
    with pytest.raises((ValueError, OSError), match=match) as error:
        keras.saving.load_model(path, **options)
    assert path.name in str(error.value)
    assert RAN == []


@pytest.mark.parametrize("safe_mode", [True, False])
def test_cve_2024_3660_code_in_a_lambda(safe_mode: bool, tmp_path: Path) -> None:
    code = {"class_name": "__lambda__", "config": {"code": CODE, "defaults": None, "closure": None}}
    path = archive_with(tmp_path / "m.keras", lambda_of(code))
    refused(path, "runs no code from files", safe_mode=safe_mode)


@pytest.mark.parametrize("safe_mode", [True, False])
def test_cve_2025_1550_any_function_of_any_module(safe_mode: bool, tmp_path: Path) -> None:
    for module, name in (("os", "system"), ("subprocess", "call"), ("builtins", "exec")):
        path = archive_with(tmp_path / "m.keras", lambda_of(function(module, name)))
        refused(path, name, safe_mode=safe_mode)
        layer = described("Dense", {"units": 4, "activation": function(module, name)})
        refused(archive_with(tmp_path / "m.keras", layer), name, safe_mode=safe_mode)


@pytest.mark.parametrize("safe_mode", [True, False])
@pytest.mark.parametrize(
    ("module", "name"),
    [("keras.utils", "get_file"), ("keras.src.utils.file_utils", "get_file"),
     ("kerasish.utils", "get_file"), ("kerasish.saving", "load_model"),
     ("keras.models", "load_model"), ("numpy", "load"), ("keras.utils", "save_img")],
)  # fmt: skip
def test_cve_2025_8747_keras_s_own_functions_as_gadgets(
    module: str, name: str, safe_mode: bool, tmp_path: Path
) -> None:
    gadget = lambda_of(function(module, name), arguments={"origin": "http://127.0.0.1:9/x"})
    refused(archive_with(tmp_path / "m.keras", gadget), name, safe_mode=safe_mode)


@pytest.mark.parametrize("safe_mode", [True, False])
def test_cve_2025_9905_code_in_the_older_format(safe_mode: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.h5"
    for layer in (
        {"function": [CODE, None, None], "function_type": "lambda", "module": "__main__"},
        {"function": "system", "function_type": "function", "module": "os"},
    ):
        make().save(path)
        with h5py.File(path, "a") as file:
            config = json.loads(file.attrs["model_config"])
            created = {"class_name": "Lambda", "config": {"name": "evil", **layer}}
            config["config"]["layers"][1] = created
            file.attrs["model_config"] = json.dumps(config)
        refused(path, "evil", safe_mode=safe_mode)


def test_cve_2025_9906_a_file_cannot_switch_safe_mode_off(tmp_path: Path) -> None:
    for module in ("keras.config", "kerasish.config"):
        name = "enable_unsafe_deserialization"
        path = archive_with(tmp_path / "m.keras", lambda_of(function(module, name)))
        refused(path, name)
    keras.config.enable_unsafe_deserialization()  # and the user's own call admits no code either
    code = {"class_name": "__lambda__", "config": {"code": CODE}}
    refused(archive_with(tmp_path / "m.keras", lambda_of(code)), "runs no code")


@pytest.mark.parametrize("name", ["StringLookup", "IntegerLookup", "TextVectorization"])
@pytest.mark.parametrize("safe_mode", [True, False])
def test_cve_2025_12058_a_vocabulary_read_from_any_file(
    name: str, safe_mode: bool, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("user\npassword\n")
    for place in (str(secret), "http://127.0.0.1:9/x"):
        path = archive_with(tmp_path / "m.keras", described(name, {"vocabulary": place}))
        refused(path, "vocabulary", safe_mode=safe_mode)


def _tar(path: Path, info: tarfile.TarInfo, data: bytes = b"") -> None:
    info.size = len(data)
    with tarfile.open(path, "w") as archive:
        archive.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("kind", ["parent", "absolute", "symlink", "hardlink"])
def test_cve_2025_12060_and_12638_tars_that_leave_their_folder(kind: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("as it was")
    names = {"parent": "../../outside", "absolute": str(outside)}
    info = tarfile.TarInfo(names.get(kind, "link"))
    if kind in ("symlink", "hardlink"):
        info.type = tarfile.SYMTYPE if kind == "symlink" else tarfile.LNKTYPE
        info.linkname = str(outside)
    _tar(tmp_path / "a.tar", info, b"evil" if kind in names else b"")
    with pytest.raises(ValueError, match=r"a\.tar.*nothing is unpacked"):
        keras.utils.get_file(
            origin=(tmp_path / "a.tar").as_uri(), cache_dir=tmp_path / "cache", extract=True
        )
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_dir() and p.name != "datasets"]
    assert outside.read_text() == "as it was"


@pytest.mark.parametrize("name", ["/x", "../x", "a/../../x", "C:/x", "C:x", "\\\\x\\y", "..\\x"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_members_outside_of_the_folder_are_refused_not_moved_into_it(kind, name, tmp_path):
    path = tmp_path / f"a.{kind}"
    if kind == "tar":
        _tar(path, tarfile.TarInfo(name), b"evil")
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("fine.txt", b"fine")
            archive.writestr(zipfile.ZipInfo(name), b"evil")
    with pytest.raises(ValueError, match="nothing is unpacked"):
        extract_archive(path, tmp_path / "into")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


class _Evil:
    def __reduce__(self) -> Any:
        return RAN.append, ("pickle",)


@pytest.mark.parametrize("safe_mode", [True, False])
def test_cve_2025_49655_a_pickle_in_a_torch_layer(safe_mode: bool, tmp_path: Path) -> None:
    module = {"class_name": "__bytes__", "config": {"value": pickle.dumps(_Evil(), 0).decode()}}
    layer = described("TorchModuleWrapper", {"module": module, "name": "evil"})
    refused(archive_with(tmp_path / "m.keras", layer), "TorchModuleWrapper", safe_mode=safe_mode)


@pytest.mark.parametrize("safe_mode", [True, False])
def test_cve_2026_1462_a_saved_model_elsewhere(safe_mode: bool, tmp_path: Path) -> None:
    layer = described("TFSMLayer", {"filepath": str(tmp_path), "name": "evil"})
    refused(archive_with(tmp_path / "m.keras", layer), "TFSMLayer", safe_mode=safe_mode)


def test_cve_2026_12481_no_scope_means_safe(tmp_path: Path) -> None:
    # Lambda.from_config, deserialize and clone outside load_model took "unset" for "unsafe".
    code = {"class_name": "__lambda__", "config": {"code": CODE}}
    for build in (
        lambda: layers.Lambda.from_config({"function": code, "name": "evil"}),
        lambda: layers.Lambda.from_config({"function": [CODE, None, None], "name": "evil"}),
        lambda: layers.Lambda.from_config({"function": function("posixpath", "join")}),
        lambda: layers.deserialize(lambda_of(code)),
        lambda: keras.Sequential.from_config({"layers": [lambda_of(code)]}),
        lambda: keras.saving.deserialize_keras_object(lambda_of(code)),
    ):
        with pytest.raises(ValueError, match="code|not known"):
            build()


def _weights(change: Any) -> bytes:
    held = io.BytesIO()
    with h5py.File(held, "w") as file:
        file["layers/dense/vars/1"] = np.zeros(4, "float32")
        for i in range(2):
            file[f"layers/dense_1/vars/{i}"] = np.zeros((4, 2) if i == 0 else 2, "float32")
        change(file["layers/dense/vars"])
    return held.getvalue()


DENSE = described("Dense", {"units": 4, "name": "dense"})


def attacked(data: bytes, tmp_path: Path, match: str) -> None:
    """The same data through every entry: archive, only weights, the editor."""
    refused(archive_with(tmp_path / "m.keras", DENSE, data), match)
    path = tmp_path / "m.weights.h5"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=match):
        make().load_weights(path)
    for name in ("m.keras", "m.weights.h5"):
        with pytest.raises(ValueError, match=match):
            keras.saving.KerasFileEditor(tmp_path / name)


@pytest.mark.parametrize("options", [{}, {"chunks": (64, 64), "compression": "gzip"}])
def test_cve_2026_0897_a_shape_of_petabytes(options: dict[str, Any], tmp_path: Path) -> None:
    size = (50_000_000, 50_000_000)
    data = _weights(lambda group: group.create_dataset("0", size, "float32", **options))
    attacked(data, tmp_path, "bytes")


@pytest.mark.parametrize("kind", ["external link", "soft link", "external storage", "virtual"])
def test_cve_2026_1669_other_files_as_weights(kind: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["x"] = np.ones((4, 4), "float32")
    secret = str(tmp_path / "secret.h5")

    def change(group: Any) -> None:
        if kind == "external link":
            group["0"] = h5py.ExternalLink(secret, "/x")
        elif kind == "soft link":
            group["0"] = h5py.SoftLink("/layers/dense_1/vars/0")
        elif kind == "external storage":
            group.create_dataset("0", (4, 4), "float32", external=[(secret, 0, 64)])
        else:
            layout = h5py.VirtualLayout((4, 4), "float32")
            layout[:] = h5py.VirtualSource(secret, "x", (4, 4))
            group.create_virtual_dataset("0", layout)

    attacked(_weights(change), tmp_path, "another place|another file")


def test_cve_2026_1669_in_the_older_format(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file.create_group("model_weights")
    path = tmp_path / "m.h5"
    make().save(path)
    with h5py.File(path, "a") as file:
        del file["model_weights"]
        file["model_weights"] = h5py.ExternalLink("secret.h5", "/model_weights")
    for build in (lambda: keras.saving.load_model(path), lambda: make().load_weights(path)):
        with pytest.raises(ValueError, match="another place"):
            build()


def test_cve_2021_37678_no_yaml(tmp_path: Path) -> None:
    assert not hasattr(keras.models, "model_from_yaml")
    text = "!!python/object/apply:os.system ['true']"
    with pytest.raises(ValueError, match="JSON"):
        keras.models.model_from_json(text)


# --- what safe_mode=False admits --------------------------------------------------------------


def test_lambdas_of_importable_functions_need_safe_mode_off(
    tmp_path: Path, monkeypatch: Any
) -> None:
    module = types.ModuleType("a_module_of_mine")
    exec("def doubled(x):\n    return 2 * x\n", module.__dict__)
    monkeypatch.setitem(sys.modules, "a_module_of_mine", module)
    path = tmp_path / "m.keras"
    model = keras.Sequential([keras.Input((2,)), layers.Lambda(module.doubled, name="twice")])
    model.save(path)
    refused(path, "safe_mode=False imports it")
    loaded = keras.saving.load_model(path, safe_mode=False)
    assert loaded.layers[0].function is module.doubled
    x = np.ones((1, 2), "float32")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), 2 * x)
    named = keras.saving.load_model(path, custom_objects={"doubled": module.doubled})
    assert named.layers[0].function is module.doubled


def test_a_lambda_without_a_name_cannot_be_saved(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,)), layers.Lambda(lambda x: x)])
    with pytest.raises(TypeError, match="register_keras_serializable"):
        model.save(tmp_path / "m.keras")
    assert list(tmp_path.iterdir()) == []
