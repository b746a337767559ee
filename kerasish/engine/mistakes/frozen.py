"""`trainable` set after `compile`, which readies the optimizer for what is trained."""

from __future__ import annotations

from typing import Any

from kerasish.engine.mistakes.advice import advise


def flags_of(model: Any) -> dict[int, bool]:
    """Return which layers of a model are trainable, by their identity."""
    return {id(layer): bool(layer.trainable) for layer in model._flatten_layers()}


def check_frozen(model: Any, flags: dict[int, bool]) -> None:
    """Warn where a layer's `trainable` differs from what it was at `compile`.

    Args:
        flags: what `flags_of` returned then.
    """
    changed = [x for x in model._flatten_layers() if flags.get(id(x), x.trainable) != x.trainable]
    if not changed:
        return
    layer = next((x for x in changed if x is not model), changed[0])
    others = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
    advise(
        model,
        f"trainable={layer.trainable} of {layer._who()}{others} was set after compile(), "
        "which readies the optimizer for what is trained. Call compile() again after changing it.",
    )
