"""LSTMs without a mask: one record computes all time steps, each thread some rows of the batch.

Threads synchronize once per sequence instead of several times per time step. The results do not
depend on the number of threads.
"""

from __future__ import annotations

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import time_steps
from kerasish.backends.static.codegen.driver import Record, load_runtime
from kerasish.backends.static.codegen.kernels import compile_one
from kerasish.backends.static.codegen.step_loops import FIRST
from kerasish.backends.static.codegen.time_steps import TimeSteps
from kerasish.backends.static.lowering.library import _round
from kerasish.backends.static.lowering.recurrent import BackwardUnit, RecurrentUnit
from kerasish.graph.ir import Node
from kerasish.graph.passes.recurrences import described

# Results and inputs that have another name in the loop.
_FORWARD = {"states": "0", "cells": "1", "gates": "2"}
_BACKWARD = {"dx": "0", "dh": "2", "dc": "3"}
_LAST = {"g_states": "g_last", "g_cells": "g_cells_last"}


class _AllSteps(RecurrentUnit):
    """What both directions have in common.

    Attributes:
        steps_kernel: the structure of the loop.
    """

    steps_kernel: TimeSteps
    _names: dict[str, str]

    def _reserve(self, spare: int = 0) -> None:
        """Reserve scratch memory for the loop, and `spare` bytes more."""
        self.products = []
        self._sizes = (self.steps, self.n, self.units)
        self.threads = time_steps.choose_threads(
            self.steps_kernel, self._sizes, native.get_threads()
        )
        self.one_thread = self.threads == 1
        size = time_steps.scratch_size(self.steps_kernel, self.n, self.units)
        self._offsets = {"spare": _round(size)}
        self._loop_scratch = size
        self.scratch = _round(size) + spare
        self.flops = self.step_flops = 2.0 * self.steps * self.n * self.units * self.width

    def kernels(self) -> list[TimeSteps]:
        """Return the loop over all time steps."""
        return [self.steps_kernel]

    def _name_of(self, name: str) -> str:
        """Return the name of the input or result that is an array of the loop."""
        return self._names.get(name, name)

    def _time_records(self) -> list[Record]:
        """Return the record of all time steps."""
        names = (self._name_of(name) for name in self.steps_kernel.names)
        block = time_steps.pack(
            self.steps_kernel, table=load_runtime().table, threads=self.threads,
            sizes=self._sizes, scratch=self.base,
            addresses=[self.places[name].address for name in names],
        )  # fmt: skip
        return [Record(compile_one(self.steps_kernel), block, self.name)]


class LstmUnit(_AllSteps):
    """`lstm` over a sequence without a mask."""

    steps_kernel, _names = TimeSteps(), _FORWARD

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._reserve()

    def some_steps(self, first: int, last: int) -> Record:
        """Return the record of some time steps, after `parts`; those from 0 on must run first."""
        (record,) = self._time_records()
        names, block = self.steps_kernel.names, record.block
        block[time_steps.THREADS] = 0 if first else 1
        block[time_steps.STEPS] = last - first
        places = {name: FIRST + i for i, name in enumerate(names)}
        for name, gates in (("x", self.count), ("states", 1), ("cells", 1), ("gates", self.count)):
            block[places[name]] = self._row(block[places[name]], first, gates)
        if first:
            for name, states in (("h", "states"), ("c", "cells")):
                block[places[name]] = self._row(block[places[states]], -1)
        return record


class LstmGradientUnit(_AllSteps, BackwardUnit):
    """`lstm_gradient` over a sequence without a mask; its products by weights are oneDNN's."""

    _names = _BACKWARD

    def __init__(self, node: Node) -> None:
        RecurrentUnit.__init__(self, node)
        states, cells = (self._arrives_at(name) for name in time_steps.ARRIVING)
        self.steps_kernel = TimeSteps("lstm", True, (states, cells))
        libraries = self._libraries()
        self._reserve(_round(max(p.scratchpad_bytes for p in libraries)))
        self.flops += sum(p.flops for p in libraries)

    def _arrives_at(self, name: str) -> str:
        """Return at which time steps a gradient arrives: see `TimeSteps.given`."""
        if name in self.given:
            return "every"
        return "last" if _LAST[name] in self.given else "none"

    def _name_of(self, name: str) -> str:
        return super()._name_of(name if name in self.given else _LAST.get(name, name))


def make_all_steps(node: Node) -> RecurrentUnit:
    """Return the unit of an `lstm` or `lstm_gradient` node without a mask.

    Args:
        node: the node, whose values are float32.
    """
    return LstmUnit(node) if described(node).leader.op.name == "lstm" else LstmGradientUnit(node)


def takes(node: Node) -> bool:
    """Return whether a node without a mask is an LSTM or its gradient."""
    return described(node).leader.op.name.removesuffix("_gradient") == "lstm"
