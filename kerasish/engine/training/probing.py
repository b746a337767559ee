"""Layers looked at while a model is trained: gradients, activations and weights for one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from kerasish import ops, tree
from kerasish.autodiff import gradients_of
from kerasish.engine.data.parts import assemble
from kerasish.engine.layer.call_context import context
from kerasish.engine.training import step
from kerasish.ops import dtypes
from kerasish.ops.basic.printing import silence
from kerasish.overriding import override
from kerasish.tensor import Tensor, VariableScope, using_scope
from kerasish.typing import Structure

if TYPE_CHECKING:
    from kerasish.backends import CompiledStep
    from kerasish.engine.layer.layer import Layer
    from kerasish.engine.training.interface import StepProgram
    from kerasish.engine.training.program import TrainingProgram


class LayerState(NamedTuple):
    """What a layer shows for a batch.

    Attributes:
        path: the layer's path.
        gradient: the norm of the loss's gradient by its trainable weights; NaN without such.
        weight: the norm of its trainable weights; NaN without such.
        mean, deviation: mean and standard deviation of the elements of its result.
        zeros: the share of zeros among them.
    """

    path: str
    gradient: float
    weight: float
    mean: float
    deviation: float
    zeros: float


class Probe:
    """Runs a model forward and back on a few rows, and changes nothing.

    The forward pass is that of inference: nothing is dropped or drawn. What the layers would
    assign is dropped, and what they would print is not printed.

    Args:
        program: the program of the model, which is built.
        batch: x, y, sample_weight.
        rows: the most rows that are taken of the batch.
    """

    def __init__(self, program: TrainingProgram, batch: tuple[Any, ...], rows: int) -> None:
        self._program = program
        self._batch = tree.map_structure(lambda a: a if a is None else np.asarray(a)[:rows], batch)
        self._compiled: CompiledStep | None = None
        self._paths: list[str] = []

    def __call__(self) -> list[LayerState]:
        """Return the state of each layer that computes numbers, in the order of the calls."""
        program = self._program
        if self._compiled is None:
            name = f"probe {program.model.name}"
            self._compiled = program.backend().compile(self._observe, name=name)
        numbers = self._compiled(*self._batch)
        rows = np.asarray(numbers, "float64").tolist()
        return [LayerState(path, *row) for path, row in zip(self._paths, rows)]

    def _observe(self, x: Structure, y: Structure, sample_weight: Structure) -> Tensor:
        program, model = cast("StepProgram", self._program), self._program.model
        results: dict[int, tuple[Layer, list[Tensor]]] = {}

        def watch(layer: Layer, outputs: Structure) -> None:
            if not layer.flatten_layers(include_self=False, recursive=False):
                floats = [t for t in tree.flatten(outputs) if _is_float(t)]
                results.setdefault(id(layer), (layer, []))[1].extend(floats)

        step.note_uses(program)
        variables = model.trainable_variables
        with using_scope(VariableScope()), silence():
            x = assemble(x)
            with override(context, "watch", watch):
                predictions = model(x, training=False)
            loss = step.loss_of(model, x, y, predictions, sample_weight, False)
            gradients = dict(zip(map(id, variables), gradients_of(loss, variables)))
        shown = [(layer, some) for layer, some in results.values() if some]
        self._paths = [layer.path for layer, _ in shown]
        return ops.stack([_row(layer, some, gradients) for layer, some in shown])


def _is_float(t: object) -> bool:
    return isinstance(t, Tensor) and dtypes.is_float(t.dtype)


def _row(layer: Layer, results: list[Tensor], gradients: dict[int, Any]) -> Tensor:
    """Return the numbers of a `LayerState` behind the path."""
    weights = [v for v in layer.trainable_weights if dtypes.is_float(v.dtype)]
    slopes = [gradients[id(v)] for v in weights if gradients.get(id(v)) is not None]
    flat = ops.concatenate([ops.reshape(ops.cast(t, "float32"), (-1,)) for t in results])
    zeros = ops.mean(ops.cast(ops.equal(flat, 0.0), "float32"))
    return ops.stack([_norm(slopes), _norm(weights), ops.mean(flat), ops.std(flat), zeros])


def _norm(tensors: list[Any]) -> Any:
    if not tensors:
        return ops.convert_to_tensor(float("nan"), "float32")
    return ops.sqrt(sum(ops.sum(ops.square(ops.cast(t, "float32"))) for t in tensors))
