"""What the user gave as x, y and sample_weight, read as the model's inputs are."""

from __future__ import annotations

from typing import Any

from kerasish import tree
from kerasish.engine.data.ragged import Ragged, find_ragged
from kerasish.engine.data.sequences import holds_ragged
from kerasish.engine.data.tables import as_inputs
from kerasish.engine.training.interface import TrainedModel
from kerasish.typing import Structure


def read_given(
    model: TrainedModel, x: Structure, y: Structure = None, sample_weight: Structure = None
) -> tuple[Any, Any, Any]:
    """Return (x, y, sample_weight) with tables as columns and lists of sequences as `Ragged`.

    Args:
        model: the model that they are for.
        x: inputs as `fit` takes them.
        y: targets, or None.
        sample_weight: weights, or None.

    Raises:
        ValueError: sequences that are no numbers, or a model that takes none.
    """
    x, y = as_inputs(x, model.input_keys), as_inputs(y)
    x = find_ragged(x, model.input_count)
    if holds_ragged(x):
        if model.host_stage() is not None:
            raise ValueError(
                f"{model.display_name()}: its first layers run on the host and take rows of equal "
                "length, got sequences of different lengths. Map the data through these layers "
                "first, or pad it (utils.pad_sequences)."
            )
        _check_shapes(model, x)
        y = find_ragged(y, model.output_count, "y")
        sample_weight = find_ragged(sample_weight, model.output_count, "sample_weight")
    return x, y, sample_weight


def _check_shapes(model: TrainedModel, x: Structure) -> None:
    """Raise where sequences of different lengths are given for an input of one length."""
    known = model.known_inputs
    given = [x.get(key) for key in known] if isinstance(x, dict) else tree.flatten(x)
    for t, rows in zip(known.values(), given):
        if not isinstance(rows, Ragged):
            continue
        if len(t.shape) != len(rows.shape) or t.shape[1] is not None:
            raise ValueError(
                f"{rows.name}: expected nested lists that form a rectangular array, since "
                f"{model.display_name()} takes {t.name!r} of shape {t.shape}, got lists of unequal "
                f"length. Pad them to one length (utils.pad_sequences), or let the model take rows "
                f"of any length: Input({(None, *t.shape[2:])})."
            )
