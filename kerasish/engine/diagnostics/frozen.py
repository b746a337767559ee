"""`trainable` set after `compile`, which readies the optimizer for what is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish.engine.diagnostics.advice import warn_once

if TYPE_CHECKING:
    from kerasish.engine.model.model import Model
    from kerasish.engine.training.interface import TrainedModel


class Flags:
    """Which layers of a model are trainable.

    It keeps the layers: the id of a deleted one may become that of another.

    Args:
        layers: the layers.
    """

    def __init__(self, layers: Sequence[Any] = ()) -> None:
        self._flags = [(layer, bool(layer.trainable)) for layer in layers]

    def changed(self, layers: Sequence[Any]) -> list[Any]:
        """Return those of the layers whose flags differ from what they were."""
        before = {id(layer): flag for layer, flag in self._flags}
        return [x for x in layers if before.get(id(x), x.trainable) != x.trainable]


def flags_of(model: TrainedModel) -> Flags:
    """Return which layers of a model are trainable now."""
    return Flags(model.flatten_layers())


def check_frozen(model: Model, flags: Flags) -> None:
    """Warn where a layer's `trainable` differs from what it was at `compile`.

    Args:
        flags: what `flags_of` returned then.
    """
    changed = flags.changed(model.flatten_layers())
    if not changed:
        return
    layer = next((x for x in changed if x is not model), changed[0])
    others = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
    warn_once(
        model,
        f"trainable={layer.trainable} of {layer.display_name()}{others} was set after compile(), "
        "which readies the optimizer for what is trained. Call compile() again after changing it.",
    )
