"""How masks go through a layer: in by the arguments of `call`, out on the results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from kerasish import ops, tree
from kerasish.engine.diagnostics import warn_once
from kerasish.engine.layer.arguments import _masks_of
from kerasish.engine.layer.call_context import CallParts
from kerasish.engine.layer.dropped_masks import LostMask, lost_mask_of, pass_on
from kerasish.signatures import any_arguments
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, Structure, TensorLike


@contextlib.contextmanager
def without_masks(*tensors: Any) -> Iterator[None]:
    """Let tensors carry no mask for a while: a layer that has read them hands them to its parts."""
    kept = [(t, t._keras_mask) for t in tensors if getattr(t, "_keras_mask", None) is not None]
    for tensor, _ in kept:
        tensor._keras_mask = None
    try:
        yield
    finally:
        for tensor, mask in kept:
            tensor._keras_mask = mask


class MasksMixin:
    """The part of a layer for masks.

    Attributes:
        supports_masking: whether results carry the mask of the inputs.
        reads_mask: whether the numbers of other steps depend on the mask that `call` takes, so
            that doing without one is an error where it was dropped on the way. None: yes for a
            layer of the user's whose `call` takes a mask.
    """

    supports_masking = False
    reads_mask: bool | None = None
    accepts_dropped_mask = False
    _mixes_steps = False  # whether an axis of the same place may hold something else afterwards
    call_parts: CallParts

    def _first_named(self, kwargs: dict[str, Any]) -> AnyTensor:
        """Return the first argument of `call` where it was passed by name, else None."""
        names = self.call_parts.names
        return kwargs.get(names[0]) if names and kwargs else None

    def _pass_masks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Give `call` the masks that its arguments carry."""
        parts = self.call_parts
        if "mask" in parts.masks:
            if kwargs.get("mask") is None and "mask" not in parts.names[: len(args)] and args:
                mask = _masks_of(args[0])
                if mask is not None:
                    kwargs["mask"] = mask
                self._miss(args[0], mask)
            return
        own = self._given_mask(args, kwargs)
        for name in parts.masks:
            source = name[:-5]
            place = parts.names.index(source) if source in parts.names else -1
            value = args[place] if 0 <= place < len(args) else kwargs.get(source)
            given = name in parts.names[: len(args)] or kwargs.get(name) is not None
            if value is not None and not given:
                mask = _masks_of(value)
                if mask is not None:
                    kwargs[name] = mask
                elif not own and source != "query":  # each query looks for itself
                    self._miss(value, None)

    def join_masks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Let the masks in `kwargs` leave out what those that the arguments carry leave out.

        A functional model gives its layers the masks of its graph. What an input of the model
        carries, as rows of different lengths do, is known only in the call.

        Args:
            args, kwargs: of a call; `kwargs` is changed.
        """
        names = self.call_parts.names
        for name in self.call_parts.masks:
            place = 0 if name == "mask" else names.index(name[:-5])
            value = args[place] if place < len(args) else kwargs.get(names[place])
            if kwargs.get(name) is not None:
                kwargs[name] = _joined(kwargs[name], _masks_of(value))

    def _given_mask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the caller gives a mask: then it is known that the data carries none."""
        named = [*zip(self.call_parts.names, args), *kwargs.items()]
        return any(
            (name == "mask" or name.endswith("_mask")) and value is not None
            for name, value in named
            if not isinstance(value, bool)
        )

    def _miss(self, value: Structure, mask: AnyTensor | Sequence[Any] | None) -> None:
        """Object to data whose mask was dropped on the way here, if this layer would read it."""
        if isinstance(value, (list, tuple)) and len(value) > 1:  # [query, value, key]
            value = [v for v in value[1:] if _masks_of(v) is None]
        elif mask is not None:
            return
        loss = lost_mask_of(value)
        if loss is None or self.accepts_dropped_mask or not self._reads(loss):
            return
        missing = (
            f"its input carried a mask until {loss.by} dropped it, so padded steps would count "
            "here as if they were data."
        )
        if loss.certain:
            raise ValueError(
                f"{self.display_name()}: {missing} Either let the mask through (supports_masking = "  # type: ignore[attr-defined]
                f"True in {loss.by}, if its steps stay in their places; or a layer that carries "
                "masks), or give the mask here yourself (mask=...; attention_mask=... for "
                "multi-head attention), or make none (mask_zero=False)."
            )
        warn_once(
            self,  # type: ignore[arg-type]
            f"{missing} Merge with layers whose inputs all carry masks, put the op into a layer "
            "with supports_masking = True, or give the mask here yourself (mask=...).",
        )

    def _reads(self, loss: LostMask) -> bool:
        if self.reads_mask is None:
            return not type(self).__module__.startswith("kerasish.")
        return self.reads_mask

    def _set_masks(
        self, first: Structure, outputs: Structure, given: AnyTensor | Sequence[Any] | None = None
    ) -> None:
        own_rule = _overrides(self, "compute_mask", MasksMixin)
        masks = _masks_of(first) if given is None else given
        loss = lost_mask_of(first)
        if not (self.supports_masking or own_rule):
            if masks is not None and not self.call_parts.masks:
                warn_once(
                    self,  # type: ignore[arg-type]
                    "its input carries a mask, but the layer does not support masking and drops "
                    "it: padded steps will count from here on. Put a layer that uses the mask "
                    "first (LSTM, GlobalAveragePooling1D), or set supports_masking=True.",
                )
                loss = LostMask(self.display_name(), _rank_of(masks), True)  # type: ignore[attr-defined]
        elif masks is not None or own_rule:
            result = self.compute_mask(first, masks)
            if result is not None:
                self._mark(None if given is not None else first, outputs, result)
            elif masks is not None and self._merges_masks and loss is None:
                loss = LostMask(self.display_name(), _rank_of(masks), False)  # type: ignore[attr-defined]
        if loss is not None and getattr(self, "return_sequences", True):
            pass_on(loss, outputs, _steps_of(first, loss.ndim) if self._mixes_steps else None)

    _merges_masks = False  # whether one input without a mask leaves the result without one

    def _mark(
        self, first: TensorLike | None, outputs: TensorLike, computed: AnyTensor | Sequence[Any]
    ) -> None:
        results = tree.flatten(outputs)
        given = tree.flatten(computed) if tree.is_nested(outputs) else [computed]
        for t, m in zip(results, given):
            if m is not None and getattr(t, "_keras_mask", None) is None and t is not first:
                t._keras_mask = m

    @any_arguments
    def compute_mask(self, inputs: Structure, previous_mask: Structure) -> Structure:
        """Return the mask of the result: by default that of the input."""
        return previous_mask


def _overrides(layer: object, method: str, base: type) -> bool:
    return getattr(type(layer), method) is not getattr(base, method)


def _parent_of_overrides(layer: object, method: str, base: type) -> type:
    """Return the class above the last one below `base` that defines the method."""
    classes = type(layer).__mro__
    below = classes[: classes.index(base)]
    return classes[1 + max(i for i, cls in enumerate(below) if method in vars(cls))]


def _rank_of(masks: AnyTensor | Sequence[Any]) -> int:
    return max(len(m.shape) for m in tree.flatten(masks) if m is not None)


def _steps_of(x: Tensor, ndim: int) -> tuple[Any, ...]:
    leaves = [t for t in tree.flatten(x) if hasattr(t, "shape")]
    return tuple(leaves[0].shape[:ndim]) if leaves else ()


def accept_dropped_masks(layer: Any) -> None:
    """Let a layer from a file, and its parts, work as it was trained: without a dropped mask."""
    for part in layer.flatten_layers():
        part.accepts_dropped_mask = True


def is_of_lengths(mask: AnyTensor | None) -> bool:
    """Return whether a mask leaves out the padding of rows of different lengths.

    Keras has no such masks. Layers that begin their own mask must keep this one.
    """
    return bool(getattr(mask, "of_lengths", False))


def joined_mask(own: Tensor, earlier: Any) -> Tensor:
    """Return a mask that is True where both are."""
    result = ops.logical_and(own, earlier)
    if is_of_lengths(own) or is_of_lengths(earlier):
        result.of_lengths = True
    return result


def _joined(given: Structure, carried: Structure) -> Structure:
    """Return masks that are True where both are; as given where nothing is carried."""
    if carried is None or given is None:
        return given
    if isinstance(given, (list, tuple)):
        return type(given)(_joined(g, c) for g, c in zip(given, carried))
    if isinstance(given, dict):
        return {k: _joined(g, carried.get(k)) for k, g in given.items()}
    if given is carried or tuple(given.shape) != tuple(carried.shape):
        return given
    return joined_mask(given, carried)
