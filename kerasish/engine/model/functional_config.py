"""The config of a functional model: layers, ops and the calls between them."""

from __future__ import annotations

from typing import Any

from kerasish import registry, tree
from kerasish.engine.functional.functional import FunctionalGraph
from kerasish.engine.functional.input_layer import InputLayer
from kerasish.engine.functional.replay import Job, place_of, replay_all
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.masks import accept_dropped_masks
from kerasish.engine.layer.operation import KerasTensor, OpCall, Operation
from kerasish.engine.layer.operation_config import class_of, find_op, is_short_op, write_operation
from kerasish.errors import UnknownNameError


def functional_config(graph: FunctionalGraph, inputs: Any, outputs: Any) -> dict[str, Any]:
    """Return Keras's config of a functional model's graph: layers, their calls, inputs and outputs.

    Args:
        graph: the calls.
        inputs: the symbolic inputs, in the model's structure.
        outputs: the symbolic outputs, in the model's structure.
    """
    own = {id(n) for n in graph.nodes}
    places: dict[int, dict[int, int]] = {}
    for operation in graph.operations:
        inside = [n for n in operation.inbound_nodes if id(n) in own]
        places[id(operation)] = {id(n): i for i, n in enumerate(inside)}
    layers = []
    for operation in graph.operations:
        if isinstance(operation, OpCall):
            layers.append(_op_config(operation, places))
            continue
        entry = registry.serialize_keras_object(operation)
        entry["name"] = operation.name
        entry["inbound_nodes"] = [
            _call_config(n.args, n.kwargs, places)
            for n in operation.inbound_nodes
            if id(n) in own and not isinstance(operation, InputLayer)
        ]
        layers.append(entry)

    def point(t: Any) -> list[Any]:
        operation, node, index = t._keras_history
        number = places[id(operation)][id(operation.inbound_nodes[node])]
        return [operation.name, number + _first_number(operation), index]

    return {
        "layers": layers,
        "input_layers": tree.map_structure(point, inputs),
        "output_layers": tree.map_structure(point, outputs),
    }


def _first_number(operation: Operation) -> int:
    """Return the number of an operation's first call where a config names inputs and outputs.

    Only there Keras counts the construction of a nested functional model as its first call.
    """
    functional = isinstance(operation, Layer) and operation.layer_graph is not None
    return int(functional and not operation.is_sequential)


def _op_config(operation: OpCall, places: dict[int, dict[int, int]]) -> dict[str, Any]:
    module, class_name = class_of(operation.function)
    settings, args, kwargs = write_operation(operation)
    return {
        "module": module,
        "class_name": class_name,
        "config": {"name": operation.name, **registry.serialize_keras_object(settings)},
        "registered_name": class_name,
        "name": operation.name,
        "inbound_nodes": [_call_config(args, kwargs, places)],
    }


def _call_config(args: Any, kwargs: Any, places: dict[int, dict[int, int]]) -> dict[str, Any]:
    def write(x: Any) -> Any:
        if isinstance(x, KerasTensor):
            operation, number, index = x._keras_history  # type: ignore[misc]
            place = places[id(operation)][id(operation.inbound_nodes[number])]
            return {
                "class_name": "__keras_tensor__",
                "config": {
                    "shape": list(x.shape),
                    "dtype": x.dtype,
                    "keras_history": [operation.name, place, index],
                },
            }
        if isinstance(x, (list, tuple)):
            return [write(part) for part in x]
        if isinstance(x, dict):
            return {k: write(v) for k, v in x.items()}
        return registry.serialize_keras_object(x)

    return {"args": [write(a) for a in args], "kwargs": write(kwargs)}


def functional_from_config(cls: Any, config: dict[str, Any]) -> Any:
    """Return the functional model that a config describes."""
    result: dict[str, Any] = {}
    waiting: list[Job] = []
    registry.count_parts(len(config["layers"]))
    for entry in config["layers"]:
        name = entry.get("name")
        if not isinstance(name, str):
            raise ValueError(f"The config has an entry of a layer without its name, got {name!r}.")
        if name in result:
            raise ValueError(f"The config names two layers {name!r}.")
        result[name] = _make_operation(entry)
        if isinstance(result[name], Layer):
            accept_dropped_masks(result[name])
        settings = _settings(entry) if isinstance(result[name], OpCall) else {}
        nodes = entry.get("inbound_nodes") or []
        waiting.extend(Job(name, i, n, settings) for i, n in enumerate(nodes))
    results: dict[tuple[str, int], Any] = {
        (name, 0): operation.inbound_nodes[0].outputs
        for name, operation in result.items()
        if isinstance(operation, InputLayer)
    }
    replay_all(waiting, result, results)

    def find(place: Any) -> Any:
        name, number, index = place_of(place)
        if name not in result:
            raise UnknownNameError.of("layer in the config", name, result)
        first = _first_number(result[name])
        for n in (number - first, number - 1 + first):
            if (name, n) in results:
                return tree.flatten(results[name, n])[index]
        raise ValueError(f"The config refers to call {number} of layer {name!r}, not there.")

    inputs = _map_places(find, config["input_layers"])
    outputs = _map_places(find, config["output_layers"])
    if not tree.flatten(inputs) or not tree.flatten(outputs):
        raise ValueError("The config of a functional model names no inputs or no outputs.")
    options = {k: config[k] for k in ("name", "trainable") if k in config}
    trainable = options.pop("trainable", True)
    model = cls(inputs, outputs, **options)
    model._trainable = trainable  # each layer's config says whether it is
    return model


def _make_operation(entry: dict[str, Any]) -> Any:
    module = entry.get("module") or ""
    if module.startswith("keras.src.ops") or is_short_op(entry):
        return OpCall(find_op(entry["class_name"]), entry["config"].get("name"))
    return registry.deserialize_keras_object(entry)


def _settings(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what an operation's config says apart from its name."""
    return {
        k: registry.deserialize_keras_object(v) for k, v in entry["config"].items() if k != "name"
    }


def _map_places(find: Any, places: Any) -> Any:
    if isinstance(places, dict):
        return {k: _map_places(find, v) for k, v in places.items()}
    if not isinstance(places, (list, tuple)):
        raise ValueError(f"The config names {places!r} where it names the result of a layer.")
    if len(places) == 3 and isinstance(places[0], str) and not isinstance(places[1], list):
        return find(places)
    parts = [_map_places(find, p) for p in places]
    return tuple(parts) if isinstance(places, tuple) else parts
