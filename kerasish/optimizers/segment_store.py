"""SegmentStore: each rank keeps a segment of a variable, which is whole only where it is used.

Reading the variable gathers the segments of all ranks; what is read is freed after its use and
gathered again by the reverse pass. Assigning to it keeps this rank's segment. The bits are those of
whole variables.

Source: Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models,
SC 2020 (its third stage).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kerasish import ops
from kerasish.ops import dtypes
from kerasish.ops.op import using_engine
from kerasish.ranks import Group
from kerasish.ranks.group import segments
from kerasish.tensor import (
    Tensor,
    Variable,
    autocast,
    is_traced,
    no_gradient,
    to_numpy,
    using_scope,
)
from kerasish.typing import Array

WHOLE = 8  # variables of fewer elements per rank are kept and updated by every rank
MOST_HELD = 2  # gathered arrays that are kept for their next use


def is_small(variable: Variable, group: Group) -> bool:
    """Return whether every rank keeps a variable whole although others are divided."""
    few = math.prod(variable.shape) < WHOLE * group.size
    return few or variable.overwrite_with_gradient


class SegmentStore:
    """This rank's segment of a variable, and the way to the other segments.

    Args:
        variable: has its whole value, the same on all ranks; the store keeps it from now on.
        group: the ranks.

    Attributes:
        segment: the variable that keeps this rank's segment.
        held: the whole value inside of `gathered`.
        ever: whether this process has had a store: most never search for one.
    """

    ever = False

    def __init__(self, variable: Variable, group: Group) -> None:
        SegmentStore.ever = True
        self.group, self.shape, self.dtype = group, variable.shape, variable.stored_dtype
        self.variable, self.held, self.closed = variable, None, False
        self.size = math.prod(self.shape)
        counts, starts = segments(self.size, group.size)
        self.start, self.stop = starts[group.rank], starts[group.rank] + counts[group.rank]
        shape = (self.stop - self.start,)
        self.segment = Variable("zeros", shape=shape, dtype=self.dtype, name=variable.name)
        self.segment.path, self.held = variable.path, None
        with using_scope(None):
            whole = np.asarray(to_numpy(variable.latest)).reshape(-1)
            self.segment.assign(whole[self.start : self.stop])
            variable.keep_in(self)

    def restore(self) -> None:
        """Give the variable its whole value again; all ranks call it together."""
        whole = self._collected(everywhere=True)
        self.variable.keep_in(None)
        self.variable.latest = self.variable.leaf_of(whole)

    # --- what the variable asks -------------------------------------------------------------------

    def read(self) -> Tensor:
        """Return the whole value, a leaf of derivatives by the variable."""
        if self.held is not None:
            return self.variable.leaf_of(self.held)
        if self.closed:
            raise RuntimeError(
                f"{self.variable.path!r} is divided among the ranks (ModelParallel): only rank 0 "
                "has it whole while a file is written."
            )
        with autocast(None), no_gradient():
            own = self.segment.value
            if is_traced(own):
                whole = ops.reshape(ops.all_gather(own, self.size), self.shape)
                return self.variable.leaf_of(whole.value)
        if not self.group.progress.since:  # outside of steps: each rank must come
            self.group.meet(f"the reading of {self.variable.path!r}")
        return GatheredTensor(self, own)

    def write(self, value: Tensor) -> None:
        """Keep this rank's segment of a value."""
        with autocast(None), no_gradient():
            self.segment.assign(ops.reshape(value, (-1,))[self.start : self.stop])

    # --- files ------------------------------------------------------------------------------------

    @property
    def known(self) -> bool:
        """Whether the whole value is kept at present."""
        return self.held is not None or self.closed

    def hold(self, everywhere: bool) -> None:
        """Collect the segments, on rank 0 or on every rank."""
        self.held = self._collected(everywhere)
        self.closed = self.held is None

    def release(self) -> None:
        """Drop the whole value."""
        self.held, self.closed = None, False

    def _collected(self, everywhere: bool) -> Any:
        own = np.asarray(to_numpy(self.segment.latest))
        collect = self.group.collect if everywhere else self.group.collect_first
        flat = collect(own, self.size)
        return None if flat is None else flat.reshape(self.shape)


class GatheredTensor(Tensor):
    """The value of a divided variable: gathered where its numbers are used, and then freed.

    Args:
        store: where the segments are.
        own: this rank's segment.
    """

    __slots__ = ("_own", "_store")

    def __init__(self, store: SegmentStore, own: Tensor) -> None:
        self._store, self._own = store, own
        self.maker = self.grad = None
        self.key, self.index, self.borrowed = store.variable.key, 0, False
        self.tracked = store.variable.trainable and dtypes.is_inexact(store.dtype)

    @property
    def value(self) -> Array:
        """The whole array."""
        own = self._own.value
        for part, whole in _held:
            if part is own:
                return whole
        with no_gradient(), autocast(None), using_engine(None):
            flat = ops.all_gather(self._own, self._store.size).value
        whole = flat.reshape(self._store.shape)
        # A fixed number of arrays is kept, so that all ranks gather alike.
        _held.append((own, whole))
        del _held[:-MOST_HELD]
        return whole

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return self._store.shape

    @property
    def dtype(self) -> str:
        """The dtype's name."""
        return self._store.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._store.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._store.size


_held: list[tuple[Array, Array]] = []  # (segment, the whole array) of the latest gatherings


def stores_of(model: object) -> list[SegmentStore]:
    """Return the stores of a model's variables.

    Args:
        model: a model or a layer.
    """
    stores = [v.store for v in getattr(model, "variables", ())]
    return list(dict.fromkeys(s for s in stores if isinstance(s, SegmentStore)))


def divide_variables(
    variables: Iterable[Variable], group: Group, divided: Callable[[str], bool] | None
) -> bool:
    """Let each rank keep segments of variables, or whole ones again; all ranks call it together.

    Args:
        variables: with equal values on all ranks.
        group: the ranks.
        divided: says which variables are divided, by their paths; None: no variable.

    Returns:
        Whether anything has changed.
    """
    changed = False
    for v in dict.fromkeys(variables):
        divides = divided is not None and not v.holds_seed and divided(v.path)
        divides = divides and not is_small(v, group)
        if divides and v.store is None:
            SegmentStore(v, group)
            changed = True
        elif not divides and isinstance(v.store, SegmentStore):
            v.store.restore()
            changed = True
    _held.clear()
    return changed
