"""Sequential: layers one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kerasish import registry, tree
from kerasish.engine.functional.host_stage import runs_on_host
from kerasish.engine.functional.input_layer import Input, InputLayer
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.masks import accept_dropped_masks
from kerasish.engine.layer.operation import KerasTensor
from kerasish.engine.model.model import Functional, Model
from kerasish.engine.training.program import TrainingProgram
from kerasish.typing import AnyTensor, Shape, Structure

if TYPE_CHECKING:
    from typing_extensions import Self

    from kerasish.engine.functional.functional import FunctionalGraph
    from kerasish.engine.layer.layer import SomeLayer


class Sequential(Model):
    """A model whose layers are called one after the other.

    It is built as soon as the input's shape is known: from an `Input`, from a first layer with
    `input_shape=`, or from the first batch.

    Args:
        layers: the layers, in order; None: none yet.
        trainable: whether training changes the weights.
        name: the model's name; None: "sequential", with a number from the second on.

    Example:
        >>> import kerasish
        >>> model = Sequential([kerasish.Input((3,)), kerasish.layers.Dense(2)])
        >>> model.output_shape
        (None, 2)
    """

    is_sequential = True
    _functional: Functional | None = None
    _known_shape: Any = None  # of the inputs, while layers are added or taken off

    def __init__(
        self,
        layers: Sequence[Layer | KerasTensor | Callable[..., Any]] | None = None,
        trainable: bool = True,
        name: str | None = None,
    ) -> None:
        Layer.__init__(self, trainable=trainable, name=name)
        self.training_program = TrainingProgram(self)
        self._stack: list[Any] = []
        self._functional = None
        if layers is not None:
            names: set[str] = set()
            given: Sequence[Any] = layers if isinstance(layers, (list, tuple)) else [layers]
            for layer in given:
                if type(self).add is Sequential.add:
                    self._push(layer, names)
                else:
                    self.add(layer, rebuild=False)
            self._forget()
            self._maybe_rebuild()

    @property
    def input_count(self) -> int | None:
        """The number of inputs: 1, unless the first layer takes several."""
        return 1 if self.layer_graph is None else super().input_count

    def _all_layers(self) -> list[Any]:
        return list(self._stack)

    def add(self, layer: Layer | KerasTensor | Callable[..., Any], rebuild: bool = True) -> None:
        """Put a layer at the end."""
        self._push(layer, {other.name for other in self._stack})
        self._forget()
        if rebuild:
            self._maybe_rebuild()

    def _push(self, layer: Layer | AnyTensor, names: set[str]) -> None:
        """Put a layer at the end; `names` are those of the layers that are there."""
        if isinstance(layer, KerasTensor):
            maker = layer._keras_history.operation if layer._keras_history else None
            if not isinstance(maker, InputLayer):
                raise ValueError(f"{self.display_name()}: add() takes a layer, got {layer!r}.")
            layer = maker
        elif isinstance(layer, type):
            raise ValueError(
                f"{self.display_name()}: add() takes a layer, got the class {layer.__name__}; make "
                f"one: {layer.__name__}(...)."
            )
        elif callable(layer) and not isinstance(layer, Layer):
            raise ValueError(
                f"{self.display_name()}: add() takes a layer, got the function {layer!r}; wrap it "
                "as layers.Lambda(function)."
            )
        elif not isinstance(layer, Layer):
            raise ValueError(
                f"{self.display_name()}: add() takes a layer, got {layer!r} of type "
                f"{type(layer).__name__}."
            )
        if layer.name in names:
            raise ValueError(f"{self.display_name()}: two layers are called {layer.name!r}.")
        if isinstance(layer, InputLayer) and self._stack:
            raise ValueError(f"{self.display_name()}: an Input must be first.")
        if not self._stack and layer._first_shape is not None and not isinstance(layer, InputLayer):
            shape = layer._first_shape
            start: Any = Input(batch_shape=shape)
            self._stack.append(start._keras_history.operation)
            names.add(self._stack[0].name)
        self._stack.append(layer)
        names.add(layer.name)

    def pop(self, rebuild: bool = True) -> Layer:
        """Take the last layer off and return it."""
        if not self._stack or (len(self._stack) == 1 and isinstance(self._stack[0], InputLayer)):
            raise ValueError(f"{self.display_name()}: there is no layer to pop.")
        layer = self._stack.pop()
        self._forget()
        if rebuild:
            self._maybe_rebuild()
        return layer

    def _forget(self) -> None:
        shapes = self._build_shapes if self.built else None
        self._known_shape = shapes and shapes["input_shape"] if self._stack else None
        self._functional, self.built = None, False
        self.training_program.drop_steps()

    def _maybe_rebuild(self) -> None:
        first = self._stack[0] if self._stack else None
        if isinstance(first, InputLayer) and len(self._stack) > 1:
            self.build(first.batch_shape)
        elif isinstance(first, Model) and first.layer_graph is not None:
            self.build(first.input_shape)
        elif first is not None and self._known_shape is not None:  # of the data seen before
            self.build(self._known_shape)

    def build(self, input_shape: Shape | None = None) -> None:
        """Build the layers for inputs of the given shape (with the batch axis).

        Without a shape nothing is done, as in Keras: an Input has built them, or the data will.
        """
        if input_shape is None:
            return
        if not self._stack:
            raise ValueError(f"{self.display_name()}: there is no layer to build.")
        first = self._stack[0]
        if isinstance(first, InputLayer):
            x = inputs = first.inbound_nodes[0].outputs
            rest = self._stack[1:]
        else:
            dtype = first.expected_dtype or first.compute_dtype
            if isinstance(first, Model) and first.layer_graph is not None:
                make = lambda t: Input(batch_shape=t.shape, dtype=t.dtype)  # noqa: E731
                x = inputs = tree.map_structure(make, first.input)
            elif tree.is_shape(input_shape):
                x = inputs = Input(batch_shape=input_shape, dtype=dtype)
            else:
                make = lambda s: Input(batch_shape=s, dtype=dtype)  # noqa: E731
                x = inputs = tree.map_shape_structure(make, input_shape)
            rest = self._stack
        self._build_shapes = {"input_shape": input_shape}
        self._casts = False
        try:
            for layer in rest:
                x = layer(x)
        except NotImplementedError:
            if not _hides_shapes(layer):
                raise
            self.built = True  # its shapes depend on data: call() is enough
            return
        self._functional = Functional(inputs, x, name=self.name)
        self._any_sizes = self._functional._any_sizes = rest is self._stack
        self.built = True

    def _call_without_graph(self, inputs: Structure) -> Any:
        """Call the layers one after the other."""
        x = inputs
        for layer in self._stack:
            if not isinstance(layer, InputLayer):
                x = layer(x)
        return x

    def _waits_for_host_layers(self) -> bool:
        return any(map(runs_on_host, self._stack))

    def _take(self, x: Structure) -> Structure:
        return self._packed(x)

    def _cast_specs(self, structure: Structure) -> Structure:
        return structure

    @property
    def layers(self) -> list[SomeLayer]:
        """The layers, without the input."""
        return [layer for layer in self._stack if not isinstance(layer, InputLayer)]

    def _inner(self, parts: list[Any]) -> list[Layer]:
        return list(self._stack)

    @property
    def layer_graph(self) -> FunctionalGraph | None:  # type: ignore[override]
        functional = self._functional
        return None if functional is None else functional.layer_graph

    @property
    def inputs_structure(self) -> Structure:
        return self._functional.inputs_structure if self._functional else None

    @property
    def outputs_structure(self) -> Structure:
        return self._functional.outputs_structure if self._functional else None

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return the result's shape for inputs of the given shape."""
        if self._functional is not None:
            return self._functional.compute_output_shape(input_shape)
        for layer in self.layers:
            input_shape = layer.compute_output_shape(input_shape)
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Return what `from_config` needs to make an equal model with new weights."""
        config: dict[str, Any] = {
            "name": self.name,
            "trainable": self._trainable,
            "dtype": registry.serialize_keras_object(self._policy),
            "layers": registry.serialize_keras_object(list(self._stack)),
        }
        if self._functional is not None:
            config["build_input_shape"] = self._functional.input_shape
        return config

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Return the model that `get_config` describes."""
        with registry.CustomObjectScope(custom_objects or {}):
            registry.count_parts(len(config["layers"]))
            layers = [registry.deserialize_keras_object(layer) for layer in config["layers"]]
        for layer in layers:
            if isinstance(layer, Layer):
                accept_dropped_masks(layer)
        model = cls(layers, name=config.get("name"))
        shape = config.get("build_input_shape")
        if not model.built and shape and layers:
            model.build(tuple(shape) if tree.is_shape(shape) else shape)
        if not config.get("trainable", True):
            model.trainable = False
        return model

    def _build_for(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        first = args[0] if args else None
        shape = tuple(first.shape) if first is not None and hasattr(first, "shape") else None
        if shape is None:
            shape = tree.map_structure(lambda t: tuple(t.shape), first)
            self.build(shape)
            return
        stack = self._stack
        if stack and not isinstance(stack[0], (InputLayer, Model)):
            # Keep integer inputs integer.
            stack[0].expected_dtype = getattr(first, "dtype", None)
        self.build((None, *shape[1:]))


def _hides_shapes(layer: Layer) -> bool:
    """Return whether a layer defines a rule for its result's shape, which may refuse."""
    kind = type(layer)
    return (
        kind.compute_output_spec is not Layer.compute_output_spec
        or kind.compute_output_shape is not Layer.compute_output_shape
    )


registry.add_builtins("keras", {"Sequential": Sequential})
registry.add_builtins("keras.models", {"Sequential": Sequential})
