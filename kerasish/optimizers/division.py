"""Division: each rank keeps the slots of its part of the variables, and updates that part.

After the sum over ranks every rank has all gradients. It updates one segment of each variable, for
which it keeps the slots, and takes the other segments from the other ranks. So the
optimizer's memory is divided by the number of ranks; the bits are those of whole updates, since
these optimizers compute each element by itself.

Files hold whole slots: `gathered` collects the segments on the rank that writes, and what
is loaded is cut (`DividedSlot`).

Source: Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models,
SC 2020 (its first stage).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kerasish import ops
from kerasish.ops.basic.conversion import optimization_barrier
from kerasish.optimizers.constraining import NARROW, constrained
from kerasish.optimizers.segment_store import SegmentStore, is_small, stores_of
from kerasish.ranks import Group
from kerasish.ranks.group import segments
from kerasish.tensor import Tensor, Variable, convert, no_gradient, to_numpy, using_scope, wrap
from kerasish.typing import Array, Shape, TensorLike

if TYPE_CHECKING:
    from kerasish.optimizers.optimizer import Optimizer


class _Part(NamedTuple):
    """This rank's segment of a variable; the variable itself, if it is small."""

    variable: Variable
    of: Variable
    start: int
    stop: int
    whole: bool
    kept: bool = False  # whether the segment is all that this rank keeps of the variable

    def cut(self, tensor: Tensor) -> Tensor:
        """Return this segment of a tensor of the variable's shape."""
        return tensor if self.whole else ops.reshape(tensor, (-1,))[self.start : self.stop]

    def join(self, tensor: Tensor, wide: bool = False) -> Tensor:
        """Return the tensor of which every rank gives its segment.

        Args:
            tensor: the segment.
            wide: send 16-bit numbers as float32: an engine that computes them so rounds none.
        """
        if self.whole:
            return tensor
        sent = ops.cast(tensor, "float32") if wide and tensor.dtype in NARROW else tensor
        flat = ops.all_gather(sent, math.prod(self.of.shape))
        return ops.cast(ops.reshape(flat, self.of.shape), tensor.dtype)

    def constrain(self, tensor: Tensor) -> Tensor:
        """Return this segment of the whole variable within its constraint."""
        constraint = self.of.constraint
        if constraint is None:
            return tensor
        return self.cut(constrained(constraint, tensor, lambda x: self.join(x, wide=True)))


class DividedSlot:
    """A slot as in files: whole, though this rank keeps only a segment of it.

    Args:
        variable: this rank's segment of the slot.
        part: the variable that it is a slot of.
        division: says whether the segments have been brought together.
    """

    def __init__(self, variable: Variable, part: _Part, division: Division) -> None:
        self.variable, self._part, self._division = variable, part, division
        self.held: Array | None = None

    @property
    def shape(self) -> Shape:
        """The shape of the whole slot."""
        return self._part.of.shape

    @property
    def dtype(self) -> str:
        """Its dtype."""
        return self.variable.dtype

    @property
    def stored_dtype(self) -> str:
        """Its dtype."""
        return self.variable.stored_dtype

    @property
    def name(self) -> str:
        """Its name."""
        return self.variable.name

    @property
    def path(self) -> str:
        """Its path."""
        return self.variable.path

    def numpy(self) -> Array:
        """Return the whole slot.

        Raises:
            RuntimeError: not inside of `gathered`.
        """
        if self.held is None:
            raise RuntimeError(
                f"{self.path!r} is divided among the ranks (DataParallel(shard_optimizer=True)): "
                "it can be read while it is saved. Call model.save(), save_weights() or "
                "get_state_tree() on all ranks."
            )
        return self.held

    @property
    def value(self) -> Tensor:
        """The whole slot, as a tensor."""
        return wrap(self.numpy())

    @property
    def latest(self) -> Tensor:
        """The whole slot, as a tensor."""
        return self.value

    def assign(self, value: TensorLike) -> None:
        """Take this rank's segment of a whole slot."""
        tensor = convert(value, self.dtype)
        if tuple(tensor.shape) != tuple(self.shape):
            raise ValueError(f"{self.path!r}: expected {self.shape}, got {tuple(tensor.shape)}.")
        with no_gradient():
            self.variable.assign(self._part.cut(tensor))

    @property
    def group(self) -> Group:
        """The ranks."""
        return self._division.group

    @property
    def known(self) -> bool:
        """Whether this slot, or another one, is whole at present."""
        return self._division.held

    def release(self) -> None:
        """Drop the whole slot."""
        self.held = None

    def hold(self, everywhere: bool) -> None:
        """Collect the segments, on rank 0 or on every rank."""
        own = np.asarray(to_numpy(self.variable.latest))
        size = math.prod(self._part.of.shape)
        group = self._division.group
        flat = group.collect(own, size) if everywhere else group.collect_first(own, size)
        self.held = None if flat is None else flat.reshape(self.shape)


class Division:
    """The segments of variables that this rank updates; `Optimizer.division` holds it.

    Args:
        optimizer: built or not; its slots become those of the segments.
        variables: the trainable variables, the same values on all ranks.
        group: the ranks; all of them call this together.
        everything: whether slots of all variables are divided; False: those of variables of which
            each rank keeps a segment (`SegmentStore`).

    Raises:
        ValueError: the optimizer needs whole variables.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        variables: Sequence[Variable],
        group: Group,
        everything: bool = True,
    ) -> None:
        check_divisible(optimizer)
        self.group, self._optimizer, self.everything = group, optimizer, everything
        built = optimizer.built
        if built:
            variables = optimizer.trainable_variables
            values = [to_numpy(v.latest) for v in optimizer.variables]
        self._parts = {v: _part_of(v, group, everything) for v in variables}
        self._of = {part.variable: part for part in self._parts.values()}
        optimizer.divide([part.variable for part in self._parts.values()], self)
        self.kept: list[Any] = [self._kept(v) for v in optimizer.variables]
        if built:
            with using_scope(None):
                for slot, value in zip(self.kept, values, strict=True):
                    slot.assign(value)

    def _kept(self, variable: Variable) -> Any:
        """Return a variable of the optimizer as in files."""
        reference = self._optimizer.reference_of(variable)
        if reference is None:
            if variable.shape and variable.value.size > 1:
                raise ValueError(
                    f"{_who(self._optimizer)} has made {variable.path!r}, of shape "
                    f"{variable.shape}, by add_variable(). Make slots by "
                    "add_optimizer_variables() or add_variable_from_reference(), which say whose "
                    "they are, or use shard_optimizer=False."
                )
            return variable
        part = self._of[reference]
        return variable if part.whole else DividedSlot(variable, part, self)

    # --- in a step --------------------------------------------------------------------------------

    def apply(
        self, optimizer: Optimizer, gradients: Sequence[Any], variables: Sequence[Variable],
        **signals: Any,
    ) -> None:  # fmt: skip
        """Change the variables by their gradients: see `Optimizer.apply`."""
        parts = [self._part(v) for v in variables]
        with no_gradient():
            own = [None if g is None else p.cut(convert(g)) for p, g in zip(parts, gradients)]
            for v, part in zip(variables, parts):
                if not part.whole:
                    if not part.kept:
                        part.variable.assign(part.cut(v.value))
                    part.variable.constraint = None if v.constraint is None else part.constrain
            optimizer.apply(own, [p.variable for p in parts], **signals)
            for v, part in zip(variables, parts):
                if not (part.whole or part.kept):
                    v.assign(part.join(part.variable.value))

    def _part(self, variable: Variable) -> _Part:
        part = self._parts.get(variable)
        if part is None:
            raise ValueError(
                f"{_who(self._optimizer)} has no slots for {variable.path!r}, which was not "
                "trainable in its first step. Call compile() with a new optimizer."
            )
        return part

    def join(self, tensors: Sequence[Tensor], variables: Sequence[Variable]) -> list[Tensor]:
        """Return whole tensors of the segments of `variables` that the ranks have.

        Args:
            tensors: of the shapes of the segments.
            variables: the segments.
        """
        joined = [self._of[v].join(t, wide=True) for t, v in zip(tensors, variables)]
        return [optimization_barrier(t) if t.dtype in NARROW else t for t in joined]

    def cut(self, tensors: Sequence[Tensor], variables: Sequence[Variable]) -> list[Tensor]:
        """Return this rank's segments of whole tensors; see `join`."""
        return [self._of[v].cut(t) for t, v in zip(tensors, variables)]

    def agreed(self, flag: Tensor) -> Tensor:
        """Return whether a flag is true on every rank."""
        wrong = ops.cast(ops.logical_not(flag), "int32")
        return ops.equal(ops.all_sum(wrong), 0)

    # --- between steps ----------------------------------------------------------------------------

    def whole(self, variable: Variable) -> Variable:
        """Return the variable that a segment is of."""
        part = self._of.get(variable)
        return variable if part is None else part.of

    def slots(self) -> list[DividedSlot]:
        """Return the slots that are divided."""
        return [v for v in self.kept if isinstance(v, DividedSlot)]

    def shared(self) -> list[Variable]:
        """Return the optimizer's variables that every rank has whole."""
        return [v for v in self.kept if not isinstance(v, DividedSlot)]

    @property
    def held(self) -> bool:
        """Whether the slots are whole at present: see `gathered`."""
        return any(slot.held is not None for slot in self.slots())

    def averages(
        self, variables: Sequence[Variable], averages: Sequence[Variable]
    ) -> list[tuple[Variable, Any]]:
        """Return (variable, whole average) pairs; all ranks call it together.

        Args:
            variables: whole ones; those that are not the optimizer's are left out.
            averages: this rank's segments, of all variables of the optimizer.
        """
        self.group.meet("the use of averages (use_ema)")
        results = []
        for (v, part), average in zip(self._parts.items(), averages):
            if any(v is one for one in variables):
                whole = average if part.whole else DividedSlot(average, part, self)
                if isinstance(whole, DividedSlot):
                    whole.hold(everywhere=True)
                results.append((v, whole))
        return results

    def undo(self) -> None:
        """Give the optimizer whole slots again, on every rank; all call it together."""
        optimizer = self._optimizer
        self.group.meet("the end of the division of the optimizer's slots")
        for slot in self.slots():
            slot.hold(everywhere=True)
        values = [to_numpy(v.latest) for v in self.kept]
        optimizer.divide(list(self._parts), None)
        with using_scope(None):
            for v, value in zip(optimizer.variables, values, strict=True):
                v.assign(value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Division:
        # A copy is for a thread that writes it: its slots are whole, and it belongs to no rank.
        if not self.held and self.slots():
            raise ValueError(_COPY)
        for slot in self.slots():
            memo[id(slot.held)] = slot.held
        result = object.__new__(type(self))
        memo[id(self)] = result
        own = {k: v for k, v in vars(self).items() if k != "group"}
        vars(result).update(copy.deepcopy(own, memo), group=None)
        return result

    def __reduce__(self) -> Any:
        raise ValueError(_COPY)


_COPY = (
    "The optimizer's slots are divided among the ranks (DataParallel(shard_optimizer=True)), so "
    "the model cannot be copied or pickled. Call model.save() on all ranks, and load the file; or "
    "use shard_optimizer=False."
)


@contextmanager
def gathered(model: object, what: str, everywhere: bool = False) -> Iterator[bool]:
    """A context in which all is whole on the rank that writes; all ranks enter it together.

    Args:
        model: its variables, and the slots of its optimizer, may be divided; else nothing is done.
        what: the call that needs them whole, for messages; the same on all ranks.
        everywhere: whether every rank needs them.

    Yields:
        Whether this rank must do what the slots are needed for.

    Raises:
        RuntimeError: on the other ranks, if it failed on the one that writes.
    """
    optimizer = getattr(model, "optimizer", None)
    division: Division | None = getattr(optimizer, "division", None)
    divided: list[DividedSlot | SegmentStore] = [*stores_of(model)]
    if division is not None and division.group is not None:
        divided.extend(division.slots())
    if not divided or divided[0].known:
        yield True
        return
    group = divided[0].group
    group.meet(what)
    failure: str | None = None
    for one in divided:
        one.hold(everywhere)
    try:
        yield everywhere or group.rank == 0
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        raise
    finally:
        for one in divided:
            one.release()
        # All ranks know whether the file exists, so that they continue in the same way.
        if not everywhere:
            reported = group.broadcast(failure)
            if reported is not None and group.rank:
                raise RuntimeError(f"{what} failed on rank 0: {reported}")


def _part_of(variable: Variable, group: Group, everything: bool) -> _Part:
    counts, starts = segments(math.prod(variable.shape), group.size)
    start = starts[group.rank]
    stop = start + counts[group.rank]
    if isinstance(variable.store, SegmentStore):
        return _Part(variable.store.segment, variable, start, stop, whole=False, kept=True)
    if not everything or is_small(variable, group):
        return _Part(variable, variable, start, stop, True)
    segment = Variable("zeros", shape=(stop - start,), dtype=variable.dtype, name=variable.name)
    segment.path = variable.path
    with using_scope(None):  # some slots begin with the variable's values
        segment.assign(np.asarray(to_numpy(variable.latest)).reshape(-1)[start:stop])
    return _Part(segment, variable, start, stop, False)


def _who(optimizer: Optimizer) -> str:
    return f"DataParallel(shard_optimizer=True): {type(optimizer).__name__}"


def check_divisible(optimizer: Optimizer) -> None:
    """Raise if an optimizer computes more than element by element.

    Args:
        optimizer: any.

    Raises:
        ValueError: its class does not say that `update` works element by element.
    """
    if not optimizer.is_elementwise():
        raise ValueError(
            f"{_who(optimizer)} computes more than element by element, so it needs whole "
            "variables. Use one of SGD, Adam, AdamW, RMSprop, Adagrad, Lion or similar, or "
            "shard_optimizer=False. A custom class sets elementwise = True next to its "
            "update()."
        )
