"""The compiled plan of a program: its units and its memory layout, without memory.

Equal graphs share one compiled plan. So the tenth model of a grid search optimizes, lowers and
compiles nothing; it only allocates memory.
"""

from __future__ import annotations

import itertools
import threading
from collections import ChainMap, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish.backends.static.codegen.kernels import compile_many
from kerasish.backends.static.codegen.team import most_helpers, using_team
from kerasish.backends.static.lowering.ahead import ahead
from kerasish.backends.static.lowering.branches import grouped
from kerasish.backends.static.lowering.build import Builder
from kerasish.backends.static.lowering.concurrent import concurrent
from kerasish.backends.static.lowering.failures import failing
from kerasish.backends.static.lowering.few_rows import few_rows
from kerasish.backends.static.lowering.in_place import written_in_place
from kerasish.backends.static.lowering.library import MatmulUnit
from kerasish.backends.static.lowering.packed_units import packed_unit
from kerasish.backends.static.lowering.program_threads import ONE_THREAD, Threads
from kerasish.backends.static.lowering.standalone_direct import fuse_followers
from kerasish.backends.static.lowering.units import (
    CopyUnit,
    Place,
    Unit,
    UnitGroup,
    nbytes_of,
    place_of,
    plan_units,
)
from kerasish.backends.static.machine import guard_pages
from kerasish.graph.formulas import pieces
from kerasish.graph.ir import Graph, Value
from kerasish.graph.plan import Plan
from kerasish.ops import dtypes

# Concurrent branches may take this multiple of the memory, and this number of bytes more.
MORE_MEMORY, SOME_MEMORY = 1.1, 1 << 20
MOST_KEPT = 1 << 27  # bytes of weights of a plan that are stored a second time


class UndecidedUpdateError(RuntimeError):
    """A graph with conditions changes a variable before the conditions are known to hold."""


class CompiledPlan:
    """Compiled units in order, and the offset of every value in an arena.

    Args:
        graph: optimized and fused.
        buffers: the inputs of the graph that are variables.
        updates: (graph input, graph output): the output is the new value of the variable.
        kernel_of: op -> NumPy kernel, for ops without native code.
        conditions: the outputs of the graph that must have certain values, or else the run ends
            before any variable has changed.
        threads: the number that may run recurrences and branches at the same time.
        is_block: whether it computes one of several blocks of rows.

    Attributes:
        units: the units in execution order.
        groups: units that run at the same time.
        aliases: value -> the value whose memory it shares.
        copies: (value, variable): what must be copied into buffers of variables at the end.
        constants: value -> its place in memory.
        plan: offsets into the arena.
        sizes: key -> bytes, for everything in the arena.
        lock: must be held while the units create records.
        threads: 1 where one thread runs all of it; None: each unit chooses by its work.
        program_threads: the numbers of threads that it was planned for.
        team: the number of shares of large products that helpers take; 1: OpenMP's threads.
        traced: the values of the trace that this was compiled from, in order; None for those that
            a saved plan has left out.
    """

    def __init__(
        self,
        graph: Graph,
        buffers: Sequence[Value],
        updates: Sequence[tuple[Value, Value]],
        kernel_of: Callable[[Any], Callable[..., Any]],
        conditions: Sequence[Value] = (),
        threads: Threads = ONE_THREAD,
        is_block: bool = False,
    ) -> None:
        self._is_block = is_block
        self.conditions = tuple(conditions)
        self.traced: list[Value | None] = []
        self.threads: int | None = None
        self.program_threads = threads
        self.team = threads.team
        updated = {} if self.conditions else {new: old for old, new in updates}
        builder = Builder(graph, kernel_of, updated)
        self.graph, self.updates, self.lock = graph, list(updates), threading.Lock()
        self.aliases = builder.aliases
        with using_team(self.team):
            built = builder.build()
        self.units: list[Unit] = concurrent(built, self.root, threads.recurrences)
        self._buffer_of = {v: v for v in buffers}
        self.constants: dict[Value, Place] = {}
        self._keep: list[Any] = []
        self._place_constants()
        self.copies: list[tuple[Value, Value]] = []
        self._place_updates()
        self._check_order()
        self._keep_weights()
        if not self.conditions:
            needed = self._kept_values()
            self.units = written_in_place(self.units, self.aliases, needed, self._buffer_of)
        self._compile()
        self.groups: list[UnitGroup] = []
        self.plan, self.sizes = self._plan(self.units, [])
        self._group_branches(threads.branches)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a saved plan holds: nothing that belongs to this process."""
        state = {**vars(self)}
        for name in ("lock", "constants", "_keep"):
            del state[name]
        known = {v for n in self.graph.nodes for part in (n, *pieces(n)) for v in part.outputs}
        state["traced"] = [v if v in known else None for v in self.traced]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.lock, self.constants, self._keep = threading.Lock(), {}, []
        self._place_constants()
        self._compile()

    def _compile(self) -> None:
        compile_many([k for u in self.units if u.native for k in u.kernels()])

    def _plan(
        self, units: Sequence[Unit], groups: Sequence[UnitGroup]
    ) -> tuple[Plan, dict[Any, int]]:
        """Return where values are stored if units run in this order."""
        fixed = ChainMap[Any, Any](self._buffer_of, self.constants)
        copies = [root for root, _ in self.copies]
        return plan_units(self.graph, units, self.root, fixed, copies, groups)

    def _group_branches(self, at_once: int) -> None:
        """Let independent branches run at the same time, where it pays and takes little memory.

        A plan with conditions has no groups: little may run before a condition is known to hold.
        """
        if self.conditions:
            return

        def key_of(v: Value) -> Any:
            root = self.root(v)
            return self._buffer_of.get(root, root)

        units, groups = grouped(self.units, key_of, set(self._buffer_of.values()), at_once)
        if groups:
            plan, sizes = self._plan(units, groups)
            if plan.nbytes <= MORE_MEMORY * self.plan.nbytes + SOME_MEMORY:
                self.units, self.groups = units, groups
                self.plan, self.sizes = plan, sizes

    def root(self, v: Value) -> Value:
        """Return the value whose memory v uses."""
        while v in self.aliases:
            v = self.aliases[v]
        return v

    def buffer_of(self, root: Any) -> Value | None:
        """Return the variable in whose buffer a value is stored; None for other memory."""
        return self._buffer_of.get(root)

    def _place_constants(self) -> None:
        for v, array in self.graph.constants.items():
            array = np.ascontiguousarray(array).reshape(np.shape(array))
            if array.size == 0:
                array = np.zeros(1, array.dtype)
            if guard_pages.mode():
                array = guard_pages.constant(array)
            self._keep.append(array)
            self.constants[v] = place_of(array)

    def _keep_weights(self) -> None:
        """Let units keep weights that this plan does not change in a layout of their own.

        The size of float copies is limited; integers take little memory.
        """
        if guard_pages.mode():
            return
        changed = {old for old, _ in self.updates}
        remaining = MOST_KEPT
        kinds: set[Any] = set()
        for i, unit in enumerate(self.units):
            if unit.keepable is None:
                continue
            weights = self.root(unit.keepable)
            # A new value may be stored in its variable's buffer, too; it changes in each run.
            unchanged = self._buffer_of.get(weights) is weights and weights not in changed
            if not unchanged and weights not in self.constants:
                continue
            is_float = dtypes.is_float(weights.dtype)
            if is_float and nbytes_of(weights) > remaining:
                continue
            packed: Unit | None = None
            if self._is_block:
                packed = packed_unit(unit, weights, kinds)
            if packed is None and isinstance(unit, MatmulUnit):
                packed = few_rows(unit, weights)
            if packed is None and most_helpers() and not self._is_block:
                packed = packed_unit(unit, weights, kinds)
            if packed is None:
                unit.keep_weights(weights)
            kept = self.units[i] = packed or unit
            remaining -= kept.kept_bytes if is_float else 0
        if self._is_block or most_helpers():
            outputs = {self.root(v) for v in self.graph.outputs}
            self.units = fuse_followers(self.units, self.root, outputs)
            self.units = ahead(self.units, self.root, outputs)

    # --- updates in place ---------------------------------------------------------------------

    def _place_updates(self) -> None:
        """Store new values of variables in the variables' buffers where nothing else reads them.

        What is written before the last unit that may end the run is copied at the end.
        """
        maker: dict[Value, int] = {}
        last_read: dict[Value, int] = {}
        decided = max(self.condition_units(), default=-1)
        last_failing = max(failing(self.units, self.root), default=-1)
        for i, unit in enumerate(self.units):
            for v in unit.writes:
                maker.setdefault(self.root(v), i)  # the first writer; later ones add to it
            for v in unit.reads:
                last_read[self.root(v)] = i
        for old, new in self.updates:
            root = self.root(new)
            if root is old:
                continue
            at = maker.get(root)
            if at is not None and at > decided and not self._is_fixed(root):
                unit = self.units[at]
                if at < last_failing or (at == last_failing and not unit.checks_first):
                    self.copies.append((root, old))
                    continue
                reader = last_read.get(old, -1)
                is_last = reader < at or (reader == at and unit.may_share(root, old))
                if is_last and nbytes_of(root) == nbytes_of(old):
                    if reader == at:
                        unit.share(root, old)  # type: ignore[attr-defined]
                    self._buffer_of[root] = old
                    continue
            self.copies.append((root, old))
        self._save_overwritten()

    def condition_units(self) -> list[int]:
        """Return for each condition the unit after which it is checked; -1: before all units.

        Conditions are checked in the order in which Python read them. If one does not hold, all
        before it do, so the answers up to it are known. A condition computed earlier waits.
        """
        last: dict[Value, int] = {}
        for i, unit in enumerate(self.units):
            for v in unit.writes:
                last[self.root(v)] = i
        completed = [last.get(self.root(v), -1) for v in self.conditions]
        return list(itertools.accumulate(completed, max))

    def _check_order(self) -> None:
        """Raise if a unit changes a variable before all conditions are known to hold."""
        decided = max(self.condition_units(), default=-1)
        for unit in self.units[: decided + 1]:
            if any(self.root(v) in self._buffer_of for v in unit.writes):
                raise UndecidedUpdateError(
                    f"{unit.name} changes a variable in place before Python has asked for the "
                    "last number"
                )

    def _save_overwritten(self) -> None:
        """Save buffers that a copy at the end reads after another copy has overwritten them."""
        overwritten = {old for _, old in self.copies} | {
            old for old, new in self.updates if self._buffer_of.get(self.root(new)) is old
        }
        for i, (root, old) in enumerate(self.copies):
            if root in overwritten and root is not old:
                saved = Value(root.shape, root.dtype)
                self.units.insert(0, CopyUnit(root, saved))
                self.copies[i] = (saved, old)

    def _kept_values(self) -> set[Value]:
        """Return the values that are outside the arena, or are read after the last unit."""
        roots = map(self.root, (*self.graph.inputs, *self.graph.outputs))
        return {*roots, *self._buffer_of, *self.constants, *(root for root, _ in self.copies)}

    def _is_fixed(self, key: Any) -> bool:
        return key in self._buffer_of or key in self.constants


class CompiledPlans:
    """A cache of the most recent compiled plans, by the structure of their graphs.

    Args:
        most: the number of compiled plans that are kept.

    Attributes:
        count: the number of plans compiled so far.
    """

    def __init__(self, most: int = 64) -> None:
        self.most, self.count = most, 0
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self._guard = threading.Lock()

    def find(self, key: int | Sequence[Any] | None, make: Callable[[], Any]) -> CompiledPlan | int:
        """Return the cached result of `make` for this key, or call it; None is never cached."""
        with self._guard:
            result = self._kept.get(key) if key is not None else None
            if result is not None:
                self._kept.move_to_end(key)
                return result
        created = make()
        with self._guard:
            self.count += 1
            if key is not None:
                created = self._kept.setdefault(key, created)
                if len(self._kept) > self.most:
                    self._kept.popitem(last=False)
        return created

    def clear(self) -> None:
        """Drop all compiled plans."""
        with self._guard:
            self._kept.clear()
