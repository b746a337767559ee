"""The steps, written once in ops: forward, loss, gradients, updates, metrics.

Each is a pure function but for assignments to variables, so every engine can run it: at once, or
traced into a graph.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.autodiff import gradients_of
from kerasish.engine.data.parts import SparseEntries, assemble
from kerasish.engine.functional.host_stage import HostInputs
from kerasish.engine.training.interface import StepProgram, TrainedModel
from kerasish.tensor import Tensor, Variable, no_gradient
from kerasish.typing import Logs, Structure
from kerasish.watched import is_collecting, note_use


def train(
    program: StepProgram,
    variables: Sequence[Variable] | None,
    x: Structure,
    y: Structure,
    sample_weight: Structure,
) -> None:
    """One training step: the model's, its optimizer's and its metrics' variables are assigned.

    Args:
        program: what is trained.
        variables: what training changes; None: ask the program after the forward pass.
        x, y, sample_weight: the batch.
    """
    note_uses(program)
    x, y, sample_weight = as_part(assemble(x)), as_part(y), as_part(sample_weight)
    predictions = program.model(x, training=True)
    loss = loss_of(program.model, x, y, predictions, sample_weight, True)
    track_loss(program, loss, x)
    if variables is None:
        program.loss_known()
        variables = program.late_variables()
    optimizer = program.require_optimizer()
    if variables:
        gradients = gradients_of(optimizer.scale_loss(loss), variables)
        check_connected(program.model, gradients)
        if program.reads_values:  # what a batch does not use has no gradient, which is no mistake
            pairs = [(g, v) for g, v in zip(gradients, variables) if g is not None]
            gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
        signals = {"loss": loss} if optimizer.needs_loss else {}
        program.apply_gradients(gradients, variables, **signals)
    with no_gradient():
        program.update_metrics(x, y, predictions, sample_weight)


def as_part(y: Structure) -> Structure:
    """Return an array of numbers as a tensor with its own memory; all else as it is.

    It is made once for all layers, losses and metrics that read it.
    """
    return Tensor(y) if type(y) is np.ndarray and y.dtype.kind in "fiub" else y


def note_uses(program: StepProgram) -> None:
    """Let a trace depend on the settings of the model, its metrics and its optimizer."""
    if is_collecting():
        for thing in (program.model, *program.model.metrics, program.optimizer):
            note_use(thing)


def loss_of(
    model: TrainedModel,
    x: Structure,
    y: Structure,
    predictions: Structure,
    sample_weight: Structure,
    training: bool,
) -> Tensor:
    """Return the model's loss of a batch."""
    given = {"x": x, "y": y, "y_pred": predictions, "sample_weight": sample_weight}
    if _takes_training(type(model).compute_loss):
        given["training"] = training
    return model.compute_loss(**given)


@functools.lru_cache(maxsize=64)
def _takes_training(method: Callable[..., Any]) -> bool:
    """Return whether a `compute_loss` takes `training`; those of Keras before 3.3 do not."""
    known = inspect.signature(method).parameters.values()
    return any(p.name == "training" or p.kind is p.VAR_KEYWORD for p in known)


def outline(
    program: StepProgram, x: Structure, y: Structure, sample_weight: Structure,
    training: bool = True,
) -> None:  # fmt: skip
    """A training step without gradients and updates: to be run on shapes, or to evaluate."""
    x = assemble(x)
    predictions = program.model(x, training=training)
    loss = loss_of(program.model, x, y, predictions, sample_weight, training)
    track_loss(program, loss, x)
    program.update_metrics(x, y, predictions, sample_weight)


def check_connected(model: TrainedModel, gradients: Sequence[Any]) -> None:
    """Raise if no trainable weight has a gradient."""
    if gradients and all(g is None for g in gradients):
        raise ValueError(
            f"{model.display_name()}: the loss depends on none of the {len(gradients)} trainable "
            "weights, so training would change nothing. Is something detached from them?"
        )


def test(
    program: StepProgram, x: HostInputs | Tensor, y: Structure, sample_weight: Structure
) -> None:
    """One evaluation step: the metrics' variables are assigned."""
    note_uses(program)
    outline(program, x, as_part(y), as_part(sample_weight), training=False)


def track_loss(program: StepProgram, loss: Tensor, x: Structure) -> None:
    """Update the running mean of the loss with a batch, weighted by the batch's size."""
    assert program.loss_tracker is not None
    with no_gradient():
        program.loss_tracker.update_state(loss, sample_weight=float(batch_size_of(x)))


def batch_size_of(x: Structure) -> int:
    """Return the number of rows of the first array of a structure."""
    while not hasattr(x, "shape"):
        if isinstance(x, SparseEntries):
            x = x.counts
        elif isinstance(x, dict):
            x = next(iter(x.values()))
        elif isinstance(x, (list, tuple)) and x:
            x = x[0]
        else:
            return 1
    return int(x.shape[0]) if x.shape else 1


def quietly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` run without records for gradients."""

    def run(*args: Any) -> Structure:
        with no_gradient():
            return function(*args)

    return run


def as_number(x: Tensor) -> Any:
    """Return a tensor's single number as a float; anything else as it is."""
    if hasattr(x, "numpy") and getattr(x, "shape", None) == ():
        return float(x)
    return x.numpy() if hasattr(x, "numpy") else x


def total(losses: Sequence[Any]) -> Tensor:
    """Return the sum of several numbers."""
    return functools.reduce(ops.add, losses)


def numbers(logs: Logs) -> dict[str, Any]:
    """Return logs with Python numbers (arrays, where a metric gives more than one number)."""
    if not isinstance(logs, dict):
        raise TypeError(
            f"A train_step or test_step returns a dict of results, got {type(logs).__name__}."
        )
    return {k: as_number(v) for k, v in logs.items()}


def check_own_step(model: TrainedModel, name: str) -> None:
    """Refuse a `train_step`, `test_step` or `predict_step` written for Keras on JAX.

    Args:
        model: the model, which overrides a method.
        name: of the method.

    Raises:
        TypeError: the method takes the state in addition to the data.
    """
    try:
        known = inspect.signature(getattr(model, name)).parameters.values()
    except ValueError:  # a callable without a signature
        return
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p.name for p in known if p.kind in positional and p.default is p.empty]
    if len(needed) > 1:
        raise TypeError(
            f"{model.display_name()}: {name}({', '.join(needed)}) takes the state, as with Keras "
            f"on JAX. Write {name}(self, data), which {_INSTEAD[name]}. Variables are assigned "
            "directly. An example: the guide 'Your own layer, loss, metric and training step'."
        )


_INSTEAD = {
    "train_step": (
        "computes the loss by self.compute_loss(x, y, self(x, training=True)) inside of "
        "kerasish.GradientTape(), passes the tape's gradients to self.optimizer.apply(gradients, "
        "self.trainable_weights), and returns a dict of results"
    ),
    "test_step": "updates metrics by self(x, training=False) and returns a dict of results",
    "predict_step": "returns self(data, training=False)",
}
