"""Keras's older format: one `.h5` file with the model's config as attributes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from kerasish import registry
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.masks import accept_dropped_masks
from kerasish.engine.layer.weights import limited_weights
from kerasish.engine.model.model import Model
from kerasish.saving.files.atomic import replacing
from kerasish.saving.files.source import SLACK, Entry
from kerasish.saving.formats.archive import KERAS_VERSION
from kerasish.saving.formats.json_text import described, read_json, restore, restore_object
from kerasish.saving.formats.legacy_config import modern, plain, training
from kerasish.saving.formats.weights import check_complete, renew_optimizer
from kerasish.saving.hdf5 import file as hdf5
from kerasish.saving.hdf5 import writer as hdf5_output
from kerasish.saving.match import LoadPlan, Misfit, match_seeds
from kerasish.saving.paths import SEEDS, places, seed_places

TOP = "top_level_model_weights"


# --- writing ----------------------------------------------------------------------------------


def save_legacy(model: Model, path: str, include_optimizer: bool = True) -> None:
    """Write `model` as a legacy `.h5` file."""
    result = described(model)
    config = {"class_name": result["class_name"], "config": plain(result["config"])}
    compiled = training(result.get("compile_config")) if include_optimizer else None
    check_complete(model, [v for _, own in _weights_by_group(model) for v in own], False)
    with replacing(path) as temporary, hdf5_output.creating(temporary) as output:
        file = output.file
        _put_text(file, "backend", "kerasish")
        _put_text(file, "keras_version", KERAS_VERSION)
        _put_text(file, "model_config", json.dumps(config))
        _put_weights(output, file.create_group("model_weights"), model)
        output.put_groups(
            (f"{SEEDS}/{group}", None, {str(i): v.numpy() for i, v in enumerate(states)})
            for group, states in seed_places(places(model))
        )
        if compiled is not None:
            _put_text(file, "training_config", json.dumps(compiled))
            if model.optimizer is not None and model.optimizer.variables:
                group = file.create_group("optimizer_weights")
                _put_variables(output, group, model.optimizer.undivided_variables)


def _put_text(holder: Any, key: str, text: str) -> None:
    import h5py

    holder.attrs.create(key, text, dtype=h5py.string_dtype("ascii"))


def _put_weights(output: hdf5_output.NewFile, root: Any, model: Model) -> None:
    _put_text(root, "backend", "kerasish")
    _put_text(root, "keras_version", KERAS_VERSION)
    hdf5_output.put_names(root, "layer_names", [layer.name for layer in model.layers])
    for name, own in _weights_by_group(model):
        _put_variables(output, root.create_group(name), own)


def _weights_by_group(model: Model) -> list[tuple[str, list[Any]]]:
    """Return (group, variables) for each layer, and for what the model holds itself."""
    groups = [(layer.name, _trainable_first(layer.weights)) for layer in model.layers]
    return [*groups, (TOP, _trainable_first(model.own_variables()))]


def _put_variables(output: hdf5_output.NewFile, group: Any, variables: list[Any]) -> None:
    names = []
    for v in variables:
        name = v.path
        while name in names:
            name += "_1"
        names.append(name)
    hdf5_output.put_names(group, "weight_names", names)
    for name, v in zip(names, variables):
        output.put_array(group, name, v.numpy())


def _trainable_first(variables: list[Any]) -> list[Any]:
    """Return variables as the format orders them: what can be trained first."""
    return [v for v in variables if v.trainable] + [v for v in variables if not v.trainable]


# --- reading ----------------------------------------------------------------------------------


def load_legacy(
    path: str, custom_objects: Mapping[str, Any] | None, compile: bool, safe_mode: bool
) -> Any:
    """Return the model that a legacy `.h5` file holds."""
    with hdf5.opened(path, path) as file:
        text = hdf5.text_attribute(file, "model_config", path)
        if text is None:
            raise ValueError(
                f"{path}: holds no model_config; files with only weights go to load_weights."
            )
        where = f"{path}: model_config"
        config = modern(read_json(text, where), _is_old(file, path))
        stored = _stored(_root(file, path), path)
        elements = sum(math.prod(e.shape) for entries in stored.values() for e in entries)
        with limited_weights(SLACK + elements):
            model = restore_object(config, custom_objects, safe_mode, where)
        if not hasattr(model, "layers"):
            raise ValueError(f"{where}: describes a {type(model).__name__}, no model.")
        accept_dropped_masks(model)
        plan = _plan(model, _root(file, path), path, None)
        _plan_seeds(plan, model, file)
        text = hdf5.text_attribute(file, "training_config", path)
        if compile and text is not None:
            where = f"{path}: training_config"
            settings = read_json(text, where)
            restore(
                lambda: model.compile_from_config(modern_training(settings, custom_objects, where)),
                where,
            )
            _plan_optimizer(plan, model, file)
        plan.run()
    return model


def modern_training(
    config: dict[str, Any], custom_objects: Mapping[str, Any] | None, where: str
) -> dict[str, Any]:
    """Return what `compile_from_config` takes, from a `training_config`."""
    from_file = config if isinstance(config, dict) else {}
    optimizer = from_file.get("optimizer_config")
    if not isinstance(optimizer, dict) or "class_name" not in optimizer:
        raise ValueError(f"{where}: names no optimizer.")
    name = str(optimizer["class_name"]).split(">")[-1]
    known = registry.BUILTINS.get("keras.optimizers", {})
    name = next((k for k in known if k.lower() == name.lower()), name)
    results = {k: from_file.get(k) for k in ("loss", "loss_weights", "metrics", "weighted_metrics")}
    results["optimizer"] = {
        "module": "keras.optimizers",
        "class_name": name,
        "config": _known_arguments(optimizer.get("config") or {}),
    }
    with registry.CustomObjectScope(custom_objects or {}):
        return {k: registry.deserialize_keras_object(v) for k, v in results.items()}


def _known_arguments(config: dict[str, Any]) -> dict[str, Any]:
    old = {"jit_compile", "is_legacy_optimizer", "decay"}
    return {k: v for k, v in config.items() if k not in old}


def _is_old(file: Any, path: str) -> bool:
    version = hdf5.text_attribute(file, "keras_version", path) or "2"
    return not version.startswith("3")


def load_legacy_weights(
    model: Model, path: str, skip_mismatch: bool = False, by: str | None = None
) -> None:
    """Put the weights of a legacy `.h5` file into a model."""
    with hdf5.opened(path, path) as file:
        with hdf5.clear_errors(path):
            is_model_file = "model_weights" in file.links()
        root = _root(file, path) if is_model_file else file
        _plan(model, root, path, by).run(skip_mismatch)


def _root(file: Any, path: str) -> Any:
    with hdf5.clear_errors(path):
        root = hdf5.member(file, "model_weights", path)
    if not hdf5.is_group(root):
        raise ValueError(f"{path}: holds no model_weights.")
    return root


def _stored(root: Any, path: str) -> dict[str, list[Entry]]:
    """Return the arrays of each layer that has any, in the file's order."""
    with hdf5.clear_errors(path):
        for _ in hdf5.members(root, path):
            continue  # links elsewhere are refused, used or not
        names = hdf5.get_names(root, "layer_names", path)
        if names is None:
            raise ValueError(f"{path}: holds no layer_names; not a Keras file.")
        results = {name: _entries(root, name, path) for name in names}
    return {name: entries for name, entries in results.items() if entries}


def _plan(model: Model, root: Any, path: str, by: str | None) -> LoadPlan:
    plan = LoadPlan(path)
    with hdf5.clear_errors(path):
        stored = _stored(root, path)
        layers = [layer for layer in model.layers if layer.weights]
        if by == "name":
            for layer in layers:
                if layer.name in stored:
                    _pair(plan, layer.name, _trainable_first(layer.weights), stored[layer.name])
        else:
            _by_position(plan, layers, stored, by)
        if TOP in root.links():
            own = _trainable_first(model.own_variables())
            _pair(plan, TOP, own, _entries(root, TOP, path))
    return plan


def _by_position(
    plan: LoadPlan, layers: list[Any], stored: dict[str, list[Entry]], by: str | None
) -> None:
    names, own = list(stored), [layer.name for layer in layers]
    if by is None and names != own and sorted(names) == sorted(own):
        plan.misfits.extend(
            Misfit("moved", f"layer {i}", a, b)
            for i, (a, b) in enumerate(zip(own, names))
            if a != b
        )
        return
    for layer, name in zip(layers, names):
        _pair(plan, layer.name, _trainable_first(layer.weights), stored[name])
    for layer in layers[len(names) :]:
        _pair(plan, layer.name, layer.weights, [])
    for name in names[len(layers) :]:
        _pair(plan, name, [], stored[name])


def _entries(root: Any, name: str, path: str) -> list[Entry]:
    group = hdf5.member(root, name, path)
    if not hdf5.is_group(group):
        raise ValueError(f"{path}: there is no group for the layer {name!r}.")
    results = []
    for weight in hdf5.get_names(group, "weight_names", path) or []:
        dataset = hdf5.member(group, weight, path)
        if not hdf5.is_array(dataset):
            raise ValueError(f"{path}: there is no array {weight!r} of the layer {name!r}.")
        results.append(hdf5.entry_of(dataset, f"{name}/{weight}", path))
    return results


def _pair(plan: LoadPlan, name: str, own: list[Any], entries: list[Entry]) -> None:
    numbered = {str(i): entry for i, entry in enumerate(entries)}
    plan.pair_each([(v, f"{name}/{v.name}") for v in own], numbered)


def _plan_seeds(plan: LoadPlan, model: Layer, file: Any) -> None:
    """Add the random states; files of Keras hold none."""
    seeds = hdf5.member(file, SEEDS, plan.where)
    if hdf5.is_group(seeds):
        match_seeds(plan, places(model), hdf5.read_groups(seeds, plan.where))


def _plan_optimizer(plan: LoadPlan, model: Model, file: Any) -> None:
    """Add the optimizer's variables, in the order in which the file names them."""
    optimizer = model.optimizer
    with hdf5.clear_errors(plan.where):
        has_state = "optimizer_weights" in file.links()
    if optimizer is None or not has_state:
        return
    with hdf5.clear_errors(plan.where):
        entries = _entries(file, "optimizer_weights", plan.where)
    optimizer.build(model.trainable_variables)
    renew_optimizer(model, len(entries))
    optimizer = model.optimizer
    own = optimizer.undivided_variables
    if len(entries) == len(own) - 1:  # Keras 2 keeps no learning rate
        own = [v for v in own if v is not optimizer.learning_rate]
    if len(own) != len(entries):
        plan.notes.append(
            f"{plan.where}: holds {len(entries)} variables of the optimizer, the optimizer has "
            f"{len(own)}; it stays as it is."
        )
        return
    for v, entry in zip(own, entries):
        plan.pair(v, entry, v.path)
