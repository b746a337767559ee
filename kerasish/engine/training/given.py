"""What the user gave as x, y and sample_weight, read as the model's inputs are."""

from __future__ import annotations

from typing import Any

from kerasish.engine.data.ragged import find_ragged
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
        y = find_ragged(y, model.output_count, "y")
        sample_weight = find_ragged(sample_weight, model.output_count, "sample_weight")
    return x, y, sample_weight
