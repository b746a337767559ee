"""How masks go through a layer: in by the arguments of `call`, out on the results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kerasish import tree
from kerasish.engine.call import CallParts
from kerasish.engine.layer_arguments import _masks_of
from kerasish.engine.mistakes import advise
from kerasish.tensor import Tensor


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


class Masked:
    """The part of a layer that knows about masks."""

    supports_masking = False
    _parts_of_call: CallParts

    def _first_named(self, kwargs: Any) -> Any:
        """Return the first argument of `call` where it came by its name, else None."""
        names = self._parts_of_call.names
        return kwargs.get(names[0]) if names and kwargs else None

    def _pass_masks(self, args: Any, kwargs: Any) -> None:
        parts = self._parts_of_call
        if "mask" in parts.masks:
            if kwargs.get("mask") is None and "mask" not in parts.names[: len(args)] and args:
                mask = _masks_of(args[0])
                if mask is not None:
                    kwargs["mask"] = mask
            return
        for name in parts.masks:
            source = name[:-5]
            place = parts.names.index(source) if source in parts.names else -1
            value = args[place] if 0 <= place < len(args) else kwargs.get(source)
            given = name in parts.names[: len(args)] or kwargs.get(name) is not None
            if value is not None and not given:
                mask = _masks_of(value)
                if mask is not None:
                    kwargs[name] = mask

    def _set_mask(self, first: Any, output: Any) -> None:
        """Let the result carry a mask: the fast way for one tensor in, one out."""
        if type(first) is Tensor:
            mask = getattr(first, "_keras_mask", None)
            if mask is None and not _overrides(self, "compute_mask", Masked):
                return
        self._set_masks(first, output)

    def _set_masks(self, first: Any, outputs: Any) -> None:
        own_rule = _overrides(self, "compute_mask", Masked)
        if not (self.supports_masking or own_rule):
            if not self._parts_of_call.masks and _masks_of(first) is not None:
                advise(
                    self,
                    "its input carries a mask, but the layer does not support masking and drops "
                    "it: padded steps will count from here on. Put a layer that uses the mask "
                    "first (LSTM, GlobalAveragePooling1D), or set supports_masking=True.",
                )
            return
        masks = _masks_of(first)
        if masks is None and not own_rule:
            return
        found = self.compute_mask(first, masks)
        if found is None:
            return
        results = tree.flatten(outputs)
        given = tree.flatten(found) if tree.is_nested(outputs) else [found]
        for t, m in zip(results, given):
            if m is not None and getattr(t, "_keras_mask", None) is None and t is not first:
                t._keras_mask = m

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """Return the mask of the result: by default that of the input."""
        return previous_mask


def _overrides(layer: object, method: str, base: type) -> bool:
    return getattr(type(layer), method) is not getattr(base, method)
