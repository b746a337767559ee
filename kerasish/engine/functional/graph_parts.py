"""The parts of a model: its layers, and the symbolic inputs and outputs of a functional one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish import tree
from kerasish.engine.functional.functional import FunctionalGraph
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.operation import KerasTensor
from kerasish.errors import UnknownNameError
from kerasish.typing import Structure

if TYPE_CHECKING:
    from kerasish.engine.layer.layer import SomeLayer


class GraphParts(Layer):
    """The part of a model that names what is in it; a base class of `Trainer`."""

    layer_graph: FunctionalGraph | None = None
    graph_layers: list[Any]
    inputs_structure: Structure
    outputs_structure: Structure

    @property
    def layers(self) -> list[SomeLayer]:
        """The layers directly in this model."""
        if self.layer_graph is not None:
            own: list[Any] = list(self.graph_layers)
        else:
            own = self.flatten_layers(include_self=False, recursive=False)
        return own

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
    def input(self) -> Structure:
        """The symbolic input(s) of a functional model, as given."""
        self._need_graph()
        return self.inputs_structure

    @property
    def output(self) -> Structure:
        """The symbolic output(s) of a functional model, as given."""
        self._need_graph()
        return self.outputs_structure

    @property
    def input_shape(self) -> Structure:
        """The shape(s) of the inputs of a functional model."""
        return _shapes_of(self.input)

    @property
    def output_shape(self) -> Structure:
        """The shape(s) of the outputs of a functional model."""
        return _shapes_of(self.output)

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs of a functional model."""
        return [t._keras_history.operation.name for t in self.inputs]

    @property
    def input_keys(self) -> list[str]:
        """The keys of a dict of inputs of a functional model, or else the inputs' names."""
        if self.layer_graph is None:
            return []
        struct = self.inputs_structure
        return list(map(str, struct)) if isinstance(struct, dict) else self.input_names

    @property
    def input_count(self) -> int | None:
        """The number of inputs of a functional model."""
        return None if self.layer_graph is None else len(self.layer_graph.inputs)

    @property
    def known_inputs(self) -> dict[str, KerasTensor]:
        """Key in a dict of inputs -> symbolic input of a functional model, in flat order."""
        if self.layer_graph is None:
            return {}
        keys: list[Any] = self.input_names
        if isinstance(self.inputs_structure, dict):
            keys = [path[0] for path, _ in tree.flatten_with_path(self.inputs_structure)]
        return dict(zip(map(str, keys), self.inputs))

    @property
    def output_count(self) -> int | None:
        """The number of outputs of a functional model."""
        return None if self.layer_graph is None else len(self.layer_graph.outputs)

    @property
    def output_names(self) -> list[str]:
        """The names of the layers whose results are the outputs."""
        if self.layer_graph is None:
            return []
        return [t._keras_history.operation.name for t in self.outputs]

    def _need_graph(self) -> FunctionalGraph:
        if self.layer_graph is None:
            raise AttributeError(
                f"{self.display_name()} is no functional model (or not built yet): it has no "
                "symbolic inputs and outputs."
            )
        return self.layer_graph

    def get_layer(self, name: str | None = None, index: int | None = None) -> SomeLayer:
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


def _shapes_of(tensors: Structure) -> Structure:
    """Return the shapes of symbolic tensors; of a list with one, its shape, as in Keras."""
    shapes = tree.map_structure(lambda t: t.shape, tensors)
    return shapes[0] if isinstance(tensors, list) and len(tensors) == 1 else shapes
