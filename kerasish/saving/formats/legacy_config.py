"""Configs of the older format, turned into today's and back."""

from __future__ import annotations

from typing import Any

from kerasish.engine.layer.operation_config import is_short_op
from kerasish.saving.paths import INNER_NAMES
from kerasish.typing import Structure

# Arguments of Keras 2 layers that no longer exist.
_GONE = {
    "time_major", "query_shape", "key_shape", "value_shape", "softmax_robust_masking",
    "implementation", "batch_size", "ragged",
}  # fmt: skip
_PUBLIC_NAMES = {inner: public for public, inner in INNER_NAMES.items()}
_NO_GROUPS = {"DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D",
              "Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"}  # fmt: skip


def plain(config: dict[str, Any]) -> dict[str, Any]:
    """Return a model's config with its graph's objects in the short form of the format."""
    if not isinstance(config, dict) or "layers" not in config:
        return config
    return {**config, "layers": [_short(entry) for entry in config["layers"]]}


def _short(entry: dict[str, Any]) -> dict[str, Any]:
    left = ("module", "registered_name", "build_config", "compile_config")
    results = {k: v for k, v in entry.items() if k not in left}
    results["config"] = plain(results["config"])
    results["class_name"] = INNER_NAMES.get(results["class_name"], results["class_name"])
    if ">" in (entry.get("registered_name") or ""):  # a class of the user's
        results["class_name"] = entry["registered_name"]
    return results


def training(compiled: Any) -> dict[str, Any] | None:
    """Return a `training_config` for what `get_compile_config` gave, serialized."""
    if not compiled or not isinstance(compiled.get("optimizer"), dict):
        return None
    optimizer = compiled["optimizer"]
    name = optimizer.get("registered_name") or optimizer["class_name"]
    rest = {k: v for k, v in compiled.items() if k != "optimizer"}
    return {
        **rest,
        "optimizer_config": {"class_name": name, "config": optimizer["config"]},
    }


def modern(config: Structure, old: bool) -> Structure:
    """Return a model's config as today's reader takes it.

    Args:
        config: what `model_config` says.
        old: whether Keras 2 wrote it.
    """
    if isinstance(config, list):
        return [modern(c, old) for c in config]
    if not isinstance(config, dict):
        return config
    if config.get("class_name") == "__tuple__" and "items" in config:
        return tuple(modern(c, old) for c in config["items"])
    if config.get("class_name") == "TensorShape" and "items" in config:
        return modern(config["items"], old)
    results = {k: modern(v, old) for k, v in config.items()}
    if isinstance(results.get("layers"), list):
        results["layers"] = [_as_layer(entry) for entry in results["layers"]]
    if (
        old
        and isinstance(results.get("class_name"), str)
        and isinstance(results.get("config"), dict)
    ):
        results["config"] = _renewed(results["class_name"], results["config"])
    return results


def _as_layer(entry: dict[str, Any]) -> dict[str, Any]:
    """The graph's objects have no module; a name may be an initializer's too (Identity)."""
    if isinstance(entry, dict) and "module" not in entry and "class_name" in entry:
        if is_short_op(entry):
            return entry
        name = entry["class_name"]
        if isinstance(name, str):
            name = _PUBLIC_NAMES.get(name, name)
        return {**entry, "module": "keras.layers", "class_name": name}
    return entry


def _renewed(class_name: str, config: dict[str, Any]) -> dict[str, Any]:
    gone = _GONE | ({"groups"} if class_name in _NO_GROUPS else set())
    if class_name == "InputLayer":
        gone = gone - {"ragged"}
    results = {k: v for k, v in config.items() if k not in gone}
    if "batch_input_shape" in results and class_name != "InputLayer":
        del results["batch_input_shape"]
    axis = results.get("axis")
    if class_name == "BatchNormalization" and isinstance(axis, list) and len(axis) == 1:
        results["axis"] = axis[0]
    return results
