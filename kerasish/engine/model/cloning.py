"""clone_model: a copy of a model with new weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerasish import tree
from kerasish.engine.functional.functional import clone_graph, renew_operation
from kerasish.engine.functional.input_layer import InputLayer
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.masks import accept_dropped_masks
from kerasish.engine.layer.operation import is_keras_tensor
from kerasish.engine.model.model import Model
from kerasish.typing import Structure


def clone_model(
    model: Model,
    input_tensors: Structure = None,
    clone_function: Callable[..., Any] | None = None,
    call_function: Callable[..., Any] | None = None,
    recursive: bool = False,
    **kwargs: Any,
) -> Model:
    """Return a model of the same structure, with its own weights.

    Args:
        model: a Sequential or functional model.
        input_tensors: symbolic tensors to start from instead of new inputs; None: new inputs.
        clone_function: layer -> the layer that takes its place;
            None: a new layer of the same config.
        call_function: (layer, *args, **kwargs) -> its result; for functional models;
            None: the layer is called.
        recursive: whether `clone_function` is asked for the layers of nested models, too.

    Example:
        >>> import kerasish
        >>> model = kerasish.Sequential([kerasish.Input((3,)), kerasish.layers.Dense(2)])
        >>> clone_model(model).output_shape
        (None, 2)
    """

    def make(operation: Any) -> Any:
        if recursive and isinstance(operation, Model):
            inner = None if operation.is_sequential else call_function
            return clone_model(
                operation, clone_function=clone_function, call_function=inner, recursive=True
            )
        if isinstance(operation, Layer) and clone_function is not None:
            return clone_function(operation)
        result = renew_operation(operation)
        if isinstance(operation, Layer) and operation.accepts_dropped_mask:
            accept_dropped_masks(result)
        return result

    if model.is_sequential:
        parts = [make(layer) for layer in model._all_layers()]  # type: ignore[attr-defined]
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


def _compiled_alike(model: Model, new: Any) -> Any:
    """Return the new model, compiled as the model is."""
    if model.compiled:
        new.compile(**model.training_program.copy_arguments())
    return new
