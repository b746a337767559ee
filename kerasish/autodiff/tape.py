"""GradientTape: records the ops inside its block and differentiates them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from kerasish import ops, tree
from kerasish.autodiff.reverse import _leaf, differentiate, name_of
from kerasish.reprs import arguments_repr
from kerasish.tensor import Key, Tensor, Variable, _serials, convert, no_gradient, recording
from kerasish.typing import Structure


class GradientTape:
    """Records the ops inside its `with` block and differentiates them.

    Trainable variables are watched automatically; other tensors after `watch(tensor)`.

    Args:
        persistent: whether `gradient` may be called more than once.
        watch_accessed_variables: whether variables are watched automatically.

    Example:
        >>> import kerasish
        >>> v = kerasish.Variable(3.0)
        >>> with kerasish.GradientTape() as tape:
        ...     y = v * v
        >>> float(tape.gradient(y, v))
        6.0
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._persistent = persistent
        self._all_variables = watch_accessed_variables
        self._watched: list[Any] = []
        self._marked: list[Tensor] = []
        self._open = False
        self._used = False
        self._since = 0

    def __enter__(self) -> GradientTape:
        if self._open:
            raise RuntimeError("GradientTape: this tape is recording already.")
        self._since = next(_serials)
        self._before, recording.on = recording.on, True
        recording.depth += 1
        self._open, self._used = True, False
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._open:
            recording.on = self._before
            recording.depth -= 1
            self._open = False

    def watch(self, tensor: Structure) -> None:
        """Let `gradient` differentiate by `tensor` (or by each tensor of a structure)."""
        for t in tree.flatten(tensor):
            if isinstance(t, Variable):
                self._watched.append(t.key)
            elif isinstance(t, Tensor):
                if not t.tracked:
                    t.require_grad()
                    self._marked.append(t)
                self._watched.append(name_of(t))
            else:
                raise TypeError(f"GradientTape.watch: expected tensors, got {type(t).__name__}.")

    def watched_variables(self) -> list[Variable]:
        """Return the variables that were watched by `watch`."""
        owners = [k.owner() for k in self._watched if isinstance(k, Key)]
        return [o for o in owners if isinstance(o, Variable)]

    def stop_recording(self) -> AbstractContextManager[None]:
        """Return a context in which nothing is recorded."""
        return no_gradient()

    def reset(self) -> None:
        """Clear all records."""
        self._since = next(_serials)
        self._used = False

    def gradient(
        self,
        target: Structure,
        sources: Structure,
        output_gradients: Structure = None,
        unconnected_gradients: str = "none",
    ) -> Structure:
        """Return the derivatives of the sum of `target` by `sources`, in the structure of these.

        Args:
            target: a tensor or a structure of tensors.
            sources: variables or watched tensors, in any structure.
            output_gradients: the incoming gradient of the target (default: ones), in its structure.
            unconnected_gradients: "none" or "zero": the value of a derivative that does not exist.

        Raises:
            RuntimeError: a second call on a tape that is not persistent.
        """
        if self._used and not self._persistent:
            raise RuntimeError(
                "GradientTape.gradient: the tape was used once; pass persistent=True for more."
            )
        if unconnected_gradients not in ("none", "zero"):
            raise ValueError(
                f"unconnected_gradients: 'none' or 'zero', got {unconnected_gradients!r}."
            )
        inside = self._open
        if inside and not self._persistent:
            self._close()
        targets = [convert(t) for t in tree.flatten(target)]
        gradients: list[Any] | None = None
        if output_gradients is not None:
            gradients = []
            tree.map_structure_up_to(target, gradients.append, output_gradients)
        leaves = tree.flatten(sources)
        names = [_leaf(s) for s in leaves]
        if inside and self._persistent:
            recording.depth -= 1
        try:
            results = differentiate(targets, gradients, names, False, self._since)
        finally:
            if inside and self._persistent:
                recording.depth += 1
        self._used = True
        watched = set(self._watched)
        result = []
        for source, name in zip(leaves, names):
            allowed = self._all_variables or not isinstance(source, Variable) or name in watched
            g = results.get(name) if allowed else None
            if g is None and unconnected_gradients == "zero":
                g = ops.zeros(source.shape, source.dtype)
            result.append(g)
        if not self._persistent:
            for t in self._marked:
                t.tracked = False
            self._marked.clear()
        return tree.pack_sequence_as(sources, result)

    __repr__ = arguments_repr
