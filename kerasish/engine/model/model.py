"""Model: a layer that can be trained; functional models."""

from __future__ import annotations

import inspect
from typing import Any

from kerasish import registry, tree
from kerasish.engine.data.data import Data
from kerasish.engine.functional.functional import (
    Graph,
    InputLayer,
    arrange_inputs,
    clone_graph,
    renew_operation,
    start_at_inputs,
)
from kerasish.engine.functional.host_stage import HostInputs, HostStage, host_stage_of, stage_data
from kerasish.engine.functional.replay import Job, place_of, replay_all
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.masks import accept_dropped_masks
from kerasish.engine.layer.operation import KerasTensor, Node, OpCall, any_symbolic, is_keras_tensor
from kerasish.engine.layer.operation_config import class_of, find_op, is_short_op, write_operation
from kerasish.engine.model.state_tree import read_state, write_state
from kerasish.engine.model.summary import print_summary
from kerasish.engine.saving_hooks import saving
from kerasish.engine.training.program import TrainingProgram
from kerasish.engine.training.trainer import Trainer
from kerasish.errors import UnknownNameError


def _is_functional(args: Any, kwargs: Any) -> bool:
    return (len(args) == 2 and any_symbolic(args[0])) or (
        len(args) == 1 and "outputs" in kwargs or "inputs" in kwargs and "outputs" in kwargs
    )


class Model(Trainer):
    """A layer with `compile`, `fit`, `evaluate`, `predict`, `save` and `summary`.

    `Model(inputs, outputs)` makes a functional model of symbolic tensors; a subclass defines
    `__init__` and `call` instead.

    Example:
        >>> import kerasish
        >>> x = kerasish.Input((3,))
        >>> model = kerasish.Model(x, kerasish.layers.Dense(2)(x))
        >>> model.output_shape
        (None, 2)
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is Model and _is_functional(args, kwargs):
            return Functional.__new__(Functional, *args, **kwargs)
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if _is_functional(args, kwargs):
            names = ("inputs", "outputs", "name")
            given = {**dict(zip(names, args)), **kwargs}
            inputs, outputs = given.pop("inputs"), given.pop("outputs")
            Layer.__init__(self, **given)
            self.training_program = TrainingProgram(self)
            self._set_graph(inputs, outputs)
            return
        if args and type(self) is Model:
            raise ValueError(
                "Model(inputs, outputs) takes symbolic tensors, which start from Input(shape), got "
                f"{', '.join(type(a).__name__ for a in args)}; data comes later, to fit()."
            )
        Layer.__init__(self, *args, **kwargs)
        self.training_program = TrainingProgram(self)

    # --- functional graph ---------------------------------------------------------------------

    layer_graph: Graph | None = None
    _any_sizes = False  # whether the inputs' shapes come from the first data, and bind no other
    reads_mask = False  # its layers do

    def _set_graph(self, inputs: Any, outputs: Any) -> None:
        inputs, outputs = start_at_inputs(inputs, outputs)
        self.inputs_structure, self.outputs_structure = inputs, outputs
        self.layer_graph = Graph(inputs, outputs, f'{type(self).__name__} "{self.name}"')
        self.graph_layers = [o for o in self.layer_graph.operations if isinstance(o, Layer)]
        self._casts = False  # each layer casts for itself
        self.built = True

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Compute the outputs; subclasses that are no functional models define their own."""
        graph = self.layer_graph
        if graph is None:
            return self._call_without_graph(inputs)
        if type(inputs) is HostInputs:  # in a step: the host stage has run already
            results = host_stage_of(graph).finish(inputs)  # type: ignore[union-attr]
        else:
            values = arrange_inputs(
                inputs, self.inputs_structure, self.display_name(), self._any_sizes
            )
            if mask is not None:
                for value, m in zip(values, tree.flatten(mask)):
                    if m is not None and getattr(value, "_keras_mask", None) is None:
                        value._keras_mask = m
            results = graph.run(values)
        if is_keras_tensor(self.outputs_structure):
            return results[0]
        return tree.pack_sequence_as(self.outputs_structure, results)

    def _call_without_graph(self, inputs: Any) -> Any:
        raise NotImplementedError(
            f"{self.display_name()} defines no call(self, inputs); write one, or give inputs and "
            "outputs."
        )

    def _prepare_inputs(self, x: Any) -> Any:
        """Return what a step gets for x: x, or the results of the model's host stage."""
        stage = self.host_stage()
        if stage is None or type(x) is HostInputs:
            return x
        return stage(arrange_inputs(x, self.inputs_structure, self.display_name(), self._any_sizes))

    def host_stage(self) -> HostStage | None:
        """Return the part of the model that runs on the host, before each step; None: no part."""
        return host_stage_of(self.layer_graph)

    def on_host(self, data: Data) -> Data:
        """Return data whose x has gone through the model's host stage, if it has one."""
        if self.layer_graph is None and not self.built and self._waits_for_host_layers():
            self._build_for((data.peek()[0],), {})
        stage = self.host_stage()
        return data if stage is None else stage_data(data, stage, self._prepare_inputs)

    def _waits_for_host_layers(self) -> bool:
        return False

    def _take(self, x: Any) -> Any:
        # A functional model's layers cast for themselves; integer inputs must stay what they are.
        if self.layer_graph is not None:
            return tree.map_structure(_as_is, x)
        return super()._take(x)

    def _cast_specs(self, structure: Any) -> Any:
        return structure if self.layer_graph is not None else super()._cast_specs(structure)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """Return the mask of the result."""
        return None if self.layer_graph is not None else super().compute_mask(inputs, previous_mask)

    def build(self, input_shape: Any) -> None:
        """Build the layers by running `call` on inputs of the given shape(s)."""
        if self.layer_graph is not None or self.built:
            self._build_shapes = {"input_shape": None}
            return
        specs = tree.map_shape_structure(lambda s: KerasTensor(s, self.compute_dtype), input_shape)
        self._build_parts((specs,), {})

    # --- parts --------------------------------------------------------------------------------

    @property
    def layers(self) -> list[Layer]:
        """The layers directly in this model."""
        if self.layer_graph is not None:
            return list(self.graph_layers)
        return self.flatten_layers(include_self=False, recursive=False)

    @property
    def operations(self) -> list[Any]:
        """The operations of a functional model."""
        return list(self.layer_graph.operations) if self.layer_graph is not None else []

    @property
    def inputs(self) -> list[Any]:
        """The symbolic inputs of a functional model, flat."""
        return self._need_graph().inputs

    @property
    def outputs(self) -> list[Any]:
        """The symbolic outputs of a functional model, flat."""
        return self._need_graph().outputs

    @property
    def input(self) -> Any:
        """The symbolic input(s) of a functional model, as given."""
        self._need_graph()
        return self.inputs_structure

    @property
    def output(self) -> Any:
        """The symbolic output(s) of a functional model, as given."""
        self._need_graph()
        return self.outputs_structure

    @property
    def input_shape(self) -> Any:
        """The shape(s) of the inputs of a functional model."""
        return tree.map_structure(lambda t: t.shape, self.input)

    @property
    def output_shape(self) -> Any:
        """The shape(s) of the outputs of a functional model."""
        return tree.map_structure(lambda t: t.shape, self.output)

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs of a functional model."""
        return [t._keras_history.operation.name for t in self.inputs]

    @property
    def output_names(self) -> list[str]:
        """The names of the layers whose results are the outputs."""
        if self.layer_graph is None:
            return []
        return [t._keras_history.operation.name for t in self.outputs]

    def _need_graph(self) -> Graph:
        if self.layer_graph is None:
            raise AttributeError(
                f"{self.display_name()} is no functional model (or not built yet): it has no "
                "symbolic inputs and outputs."
            )
        return self.layer_graph

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """Return a layer by name, or by its place in `layers`."""
        if (name is None) == (index is None):
            raise ValueError("get_layer: give either name or index.")
        layers = self.layers
        if index is not None:
            if not -len(layers) <= index < len(layers):
                raise ValueError(f"get_layer: index {index}, but there are {len(layers)} layers.")
            return layers[index]
        for layer in layers:
            if layer.name == name:
                return layer
        raise UnknownNameError.of("layer", name, [layer.name for layer in layers])

    # --- looking at it --------------------------------------------------------------------------

    def summary(
        self,
        line_length: int | None = None,
        positions: Any = None,
        print_fn: Any = None,
        expand_nested: bool = False,
        show_trainable: bool = False,
        layer_range: Any = None,
        *,
        batch_size: int | None = None,
    ) -> None:
        """Print a table of the layers, their output shapes and their numbers of weights.

        Args:
            line_length: columns of the table.
            print_fn: takes the text instead of `print`.
            expand_nested: whether to list what is inside models inside the model.
            show_trainable: whether to say what training changes.
            layer_range: (first, last) names of layers, or patterns of them.
            batch_size: rows of a batch; then the bytes of each layer's result and its FLOPs in a
                forward pass stand in the table, a multiply-add counting as two.
        """
        print_summary(
            self, line_length, positions, print_fn, expand_nested, show_trainable, layer_range,
            batch_size,
        )  # fmt: skip

    # --- files ----------------------------------------------------------------------------------

    def save(self, filepath: Any, overwrite: bool = True, zipped: Any = None, **kwargs: Any) -> Any:
        """Save the model: architecture, weights, optimizer state and compile settings."""
        return saving("save_model")(self, filepath, overwrite=overwrite, zipped=zipped, **kwargs)

    def state_folder(self, path: str) -> Any:
        """Return the training states kept in a folder; see `callbacks.Resume`."""
        return saving("state_folder")(path)

    def remove_partial_saves(self, pattern: str) -> None:
        """Remove temporary files that interrupted saves left under names like `pattern`."""
        saving("clear_cut_off")(pattern)

    def save_weights(
        self, filepath: Any, overwrite: bool = True, max_shard_size: Any = None
    ) -> Any:
        """Save the weights to a `.weights.h5` file."""
        return saving("save_weights")(
            self, filepath, overwrite=overwrite, max_shard_size=max_shard_size
        )

    def load_weights(self, filepath: Any, skip_mismatch: bool = False, **kwargs: Any) -> Any:
        """Load weights from a `.weights.h5`, `.keras` or legacy `.h5` file."""
        return saving("load_weights")(self, filepath, skip_mismatch=skip_mismatch, **kwargs)

    def get_state_tree(self, value_format: str = "backend_tensor") -> dict[str, Any]:
        """Return the variables' values as nested dicts by their paths.

        Args:
            value_format: "backend_tensor" for tensors, "numpy_array" for arrays.

        Returns:
            "trainable_variables", "non_trainable_variables", "optimizer_variables" and
            "metrics_variables", each {"layer": {"kernel": value}}.
        """
        return read_state(self, value_format)

    def set_state_tree(self, state_tree: dict[str, Any]) -> None:
        """Assign what `get_state_tree` returned, or a part of it."""
        write_state(self, state_tree)

    def to_json(self, **kwargs: Any) -> str:
        """Return the architecture as JSON."""
        return saving("model_to_json")(self, **kwargs)  # type: ignore[no-any-return]

    def export(
        self,
        filepath: Any,
        format: str = "kerasish",
        verbose: bool | None = None,
        input_signature: Any = None,
        **kwargs: Any,
    ) -> None:
        """Write the model's inference to a file: `saving.load_archive(filepath).serve(x)`.

        The file needs none of the model's classes and runs on either engine.

        Args:
            filepath: the file, of any name.
            format: "kerasish". Other formats are written by Keras, from `save('model.keras')`.
            verbose: False says nothing.
            input_signature: a list with an InputSpec for each argument; None: the model's inputs.

        Raises:
            ValueError: another format; or the model cannot be written (`ExportArchive` says when).
        """
        saving("export_model")(self, filepath, format, verbose, input_signature, **kwargs)

    # --- config ---------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """Return what `from_config` needs to make an equal model with new weights."""
        if self.layer_graph is None or _has_own_init(type(self)):
            return super().get_config()
        return functional_config(self)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Return the model that `get_config` describes."""
        with registry.CustomObjectScope(custom_objects or {}):
            if "layers" in config and "input_layers" in config:
                return functional_from_config(cls, config)
            return super().from_config(config)


def _has_own_init(cls: type) -> bool:
    """Return whether a subclass has a constructor of its own arguments."""
    if cls.__module__.split(".")[0] == "kerasish":
        return False
    names = list(inspect.signature(cls.__init__).parameters)[1:]  # type: ignore[misc]
    return names != ["args", "kwargs"]


def _as_is(x: Any) -> Any:
    return x


class Functional(Model):
    """A model given by symbolic inputs and outputs.

    Args:
        inputs, outputs: symbolic tensors: one, or a list, tuple or dict of them.
        name: the model's name.
    """

    def __init__(self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any) -> None:
        Layer.__init__(self, name=name, **kwargs)
        self.training_program = TrainingProgram(self)
        self._set_graph(inputs, outputs)

    keras_module = "keras.src.models.functional"
    keras_registered_name = "Functional"


# --- config of a functional graph ------------------------------------------------------------


def functional_config(model: Model) -> dict[str, Any]:
    """Return Keras's config of a functional model: layers, their calls, inputs and outputs."""
    graph = model._need_graph()
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
            _node_config(n, places)
            for n in operation.inbound_nodes
            if id(n) in own and not isinstance(operation, InputLayer)
        ]
        layers.append(entry)

    def point(t: Any) -> list[Any]:
        operation, node, index = t._keras_history
        number = places[id(operation)][id(operation.inbound_nodes[node])]
        # Only here Keras counts a nested functional model's own making as its first call.
        nested = isinstance(operation, Model) and type(operation).__name__ == "Functional"
        return [operation.name, number + 1 if nested else number, index]

    return {
        "name": model.name,
        "trainable": model._trainable,
        "layers": layers,
        "input_layers": _map_points(point, model.inputs_structure),
        "output_layers": _map_points(point, model.outputs_structure),
    }


def _map_points(point: Any, structure: Any) -> Any:
    if isinstance(structure, dict):
        return {k: _map_points(point, v) for k, v in structure.items()}
    if isinstance(structure, (list, tuple)):
        parts = [_map_points(point, v) for v in structure]
        return tuple(parts) if isinstance(structure, tuple) else parts
    return point(structure)


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


def _node_config(node: Node, places: dict[int, dict[int, int]]) -> dict[str, Any]:
    return _call_config(node.args, node.kwargs, places)


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
    made: dict[str, Any] = {}
    waiting: list[Job] = []
    registry.count_parts(len(config["layers"]))
    for entry in config["layers"]:
        name = entry.get("name")
        if not isinstance(name, str):
            raise ValueError(f"The config has an entry of a layer without its name, got {name!r}.")
        if name in made:
            raise ValueError(f"The config names two layers {name!r}.")
        made[name] = _make_operation(entry)
        if isinstance(made[name], Layer):
            accept_dropped_masks(made[name])
        settings = _settings(entry) if isinstance(made[name], OpCall) else {}
        nodes = entry.get("inbound_nodes") or []
        waiting.extend(Job(name, i, n, settings) for i, n in enumerate(nodes))
    results: dict[tuple[str, int], Any] = {
        (name, 0): o.inbound_nodes[0].outputs for name, o in made.items() if _is_input(o)
    }
    replay_all(waiting, made, results)

    def find(place: Any) -> Any:
        name, number, index = place_of(place)
        if name not in made:
            raise UnknownNameError.of("layer in the config", name, made)
        for n in (number, number - 1):
            if (name, n) in results:
                return tree.flatten(results[name, n])[index]
        raise ValueError(f"The config refers to call {number} of layer {name!r}, not there.")

    inputs = _map_places(find, config["input_layers"])
    outputs = _map_places(find, config["output_layers"])
    if not tree.flatten(inputs) or not tree.flatten(outputs):
        raise ValueError("The config of a functional model names no inputs or no outputs.")
    options = {k: config[k] for k in ("name", "trainable") if k in config}
    trainable = options.pop("trainable", True)
    target = Functional if cls in (Model, Functional) else cls
    model = target(inputs, outputs, **options)
    model._trainable = trainable  # each layer's config says whether it is
    return model


def _is_input(operation: Any) -> bool:
    return isinstance(operation, InputLayer)


def _make_operation(entry: dict[str, Any]) -> Any:
    module = entry.get("module") or ""
    if module.startswith("keras.src.ops") or is_short_op(entry):
        return OpCall(find_op(entry["class_name"]), entry["config"].get("name"))
    return registry.deserialize_keras_object(entry)


def _settings(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what an operation's config says beside its name."""
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


def clone_model(
    model: Any,
    input_tensors: Any = None,
    clone_function: Any = None,
    call_function: Any = None,
    recursive: bool = False,
    **kwargs: Any,
) -> Any:
    """Return a model built alike, with weights of its own.

    Args:
        input_tensors: symbolic tensors to start from instead of new inputs.
        clone_function: layer -> the layer that takes its place.
        call_function: (layer, *args, **kwargs) -> its result; for functional models.
        recursive: whether `clone_function` is asked for the layers of nested models, too.
    """

    def make(operation: Any) -> Any:
        if recursive and isinstance(operation, Model):
            inner = None if getattr(operation, "is_sequential", False) else call_function
            return clone_model(
                operation, clone_function=clone_function, call_function=inner, recursive=True
            )
        if isinstance(operation, Layer) and clone_function is not None:
            return clone_function(operation)
        made = renew_operation(operation)
        if getattr(operation, "accepts_dropped_mask", False):
            accept_dropped_masks(made)
        return made

    if getattr(model, "is_sequential", False):
        parts = [make(layer) for layer in model._all_layers()]
        if input_tensors is not None:
            parts = _begin_with(input_tensors, parts)
        return _compiled_alike(model, type(model)(parts, name=model.name))
    if not isinstance(model, Model) or model.layer_graph is None:
        if clone_function is not None or input_tensors is not None:
            raise ValueError("clone_model: a subclassed model takes no clone_function or inputs.")
        return _compiled_alike(model, type(model).from_config(model.get_config()))

    def call(operation: Any, args: Any, call_kwargs: Any) -> Any:
        if call_function is not None:
            return call_function(operation, *args, **call_kwargs)
        return operation(*args, **call_kwargs)

    if input_tensors is None:
        fresh = [renew_operation(t._keras_history.operation) for t in model.inputs]
        new_inputs = [layer.inbound_nodes[0].outputs for layer in fresh]
    else:
        tree.assert_same_structure(*map(tree.lists_to_tuples, (model.input, input_tensors)))
        new_inputs = tree.flatten(input_tensors)
    outputs, _ = clone_graph(model.layer_graph, make, new_inputs, call)
    new = type(model)(
        tree.pack_sequence_as(model.inputs_structure, new_inputs),
        tree.pack_sequence_as(model.outputs_structure, outputs),
        name=model.name,
    )
    return _compiled_alike(model, new)


def _begin_with(tensors: Any, layers: list[Any]) -> list[Any]:
    """Return the layers of a Sequential that starts from the given symbolic tensor."""
    flat = tree.flatten(tensors)
    if len(flat) != 1 or not is_keras_tensor(flat[0]):
        raise ValueError(f"clone_model: a Sequential takes one symbolic tensor, got {tensors!r}.")
    maker = flat[0]._keras_history.operation if flat[0]._keras_history is not None else None
    start = maker if isinstance(maker, InputLayer) else InputLayer(input_tensor=flat[0])
    return [start, *(layer for layer in layers if not isinstance(layer, InputLayer))]


def _compiled_alike(model: Any, new: Any) -> Any:
    """Return the new model, compiled as the model is."""
    if getattr(model, "compiled", False):
        new.compile(**model.training_program.copy_arguments())
    return new


registry.add_builtins("keras", {"Model": Model, "Functional": Functional})
registry.add_builtins("keras.models", {"Model": Model, "Functional": Functional})
