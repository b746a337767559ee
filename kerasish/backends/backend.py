"""The contract between the engines and the rest: the required and optional methods of a backend.

A backend defines HOW and WHERE ops run. It applies single ops (`apply`), and it compiles a pure
step, a function of arrays that reads and assigns variables, to a `CompiledStep`. An eager backend's
step runs the function; a static one's traces it once per signature. With every engine, assignments
inside a step take effect when the step ends, all or none.

Only `apply` and `compile` must be written. Everything else has a default that is correct but slow:
control flow runs in Python, functions composed of ops run op by op, updates run variable by
variable, and `fit` calls the step once per batch.

These public names are part of the contract; `docs/backend.md` shows a backend that uses them:

- `kerasish.ops.op`: `Op` (`kernel`, `shape`, `outputs`, traits), `using_engine(engine)` sets the
  current engine of all ops of this thread, `has_chosen_engine()` returns whether one is set;
- `kerasish.ops.shapes`: `Spec`, the shape and dtype that shape rules take;
- `kerasish.tensor`: `prepare` converts the inputs of an op, `concrete` returns a tensor's array,
  `finish` wraps a kernel's arrays in tensors and records the op for the reverse pass;
  `VariableScope` and `using_scope` keep the assignments of a step until `commit()`;
- `kerasish.backends`: `Backend`, `CompiledStep`, `RowRun`, `register`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from kerasish.devices import Device
from kerasish.ops.op import Engine, Op
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Array, Structure


class RowRun(Protocol):
    """A compiled step that runs over the batches of one epoch.

    Attributes:
        done: the number of batches done.
        left: the number of remaining batches.
    """

    done: int
    left: int

    def run(self, seconds: float, most: int | None = None) -> int:
        """Run batches until `seconds` have passed, or `most` are done; return their number."""


class Timing(NamedTuple):
    """The time of one part of a step: a record of a compiled step, or an op.

    Attributes:
        name: of the op or the kernel.
        layer: the names of the layers that it belongs to, joined by "/"; "" if none is known.
        result: dtype and shape of what it computes.
        seconds: the time.
        nbytes: bytes of what it reads and writes, each counted once.
        flops: its floating-point operations; a multiply-add counts as two.
        line: "file:line" of the user's code that it comes from, "" if that is not known.
    """

    name: str
    layer: str
    result: str
    seconds: float
    nbytes: int
    flops: int = 0
    line: str = ""


class Formula(NamedTuple):
    """One line of a step as formulas.

    Attributes:
        text: the formula: "dense = relu(x @ kernel + bias)".
        result: dtype and shape of what it computes.
        layer: the names of the layers that it belongs to, joined by "/"; "" if none is known.
        line: "file:line" of the user's code that it comes from; "" if it is not known.
        flops: floating-point operations; a multiply-add counts as two.
        nbytes: bytes of what it reads and writes, each counted once.
    """

    text: str
    result: str
    layer: str
    line: str
    flops: int
    nbytes: int


class Peaks(NamedTuple):
    """The measured peak performance of a machine.

    Attributes:
        flops: floating-point operations per second, of a large product of float32.
        nbytes: bytes read plus bytes written per second, of a large copy.
    """

    flops: float
    nbytes: float

    def share(self, timing: Timing) -> float:
        """Return the least possible time of a part on this machine, divided by its time.

        More than 1 is possible: data in a cache is read faster than memory.
        """
        least = max(timing.flops / self.flops, timing.nbytes / self.nbytes)
        return least / timing.seconds if timing.seconds > 0 else 0.0


class CompiledStep(ABC):
    """A pure step as a backend runs it."""

    # Whether `over_rows` may be called for blocks of a few batches of data that is not in memory.
    reads_blocks = False

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Structure:
        """Run the step: structures of arrays or tensors in, a structure of tensors out."""

    def call_reading(self, *args: Any) -> tuple[Structure, list[tuple[Variable, Tensor]] | None]:
        """Run the step; return its result, and each variable that it read, with its value then.

        None in place of the variables: the ops of the call have created records themselves, so that
        derivatives flow through it.
        """
        return self(*args), None

    def call_timed(self, *args: Any) -> tuple[Structure, list[Timing]]:
        """Run the step; return its result, and the time of each part; [] if that is not known."""
        return self(*args), []

    def call_on_array(self, x: Array) -> Array | None:
        """Run a step on one array whose result is one tensor; return that as a new array.

        Returns:
            None if nothing has run: call the step instead.
        """
        return None

    def ready_call(self, x: Array, mark: object) -> Callable[[Array], Array | None] | None:
        """Return a function that does what `call_on_array` does, only for arrays like this one.

        The function returns None if `call_on_array` must be called instead: if the array has
        another dtype, or if anything has changed since the mark.

        Args:
            x: an array for which `call_on_array` has just run.
            mark: `Changes.mark` before that call.

        Returns:
            The function, which takes arrays of the shape of `x`; None: there is none.
        """
        return None

    def over_rows(
        self, arrays: Sequence[Any], pack: Callable[[Any], Any], order: Array, batch_size: int
    ) -> RowRun | None:
        """Return the step as a run over whole batches of rows; None: call it batch by batch.

        Args:
            arrays: the data, with equal numbers of rows: arrays, or `MappedRows` of such (see
                `kerasish.row_formulas`), which an engine need not support. Where NumPy may warn
                of a number of a batch of these, the run ends before the batch.
            pack: flat list of batch parts -> the step's arguments.
            order: the indices of the rows in the order of processing.
            batch_size: rows per batch.
        """
        return None

    def note_data(self, data: Any, epoch: int) -> None:  # noqa: B027 (most steps need not know)
        """Note from which data the batches of the next epoch are taken."""

    def memory_report(self) -> dict[str, int]:
        """Return the memory of the step's values, in bytes; {} if it is not known.

        "planned" is what they use, "unshared" what they would use without sharing.
        """
        return {}

    def prepare(self, *args: Any) -> bool:
        """Prepare calls with arguments like these, without running anything.

        Returns:
            Whether the memory of such calls is known from now on.
        """
        return False

    def stages(self, *args: Any) -> list[tuple[str, list[Formula]]]:
        """Return (name, formulas) of the step as traced, after each pass, and as it runs; or [].

        Args:
            args: arguments of a call; nothing runs.
        """
        return []

    def peaks(self) -> Peaks | None:
        """Return the peak performance of the machine; None if it is not known."""
        return None

    def graphs(self) -> list[tuple[str, Any]]:
        """Return (title, graph) pairs: the step as traced, and as it runs; [] without graphs."""
        return []


class Backend(Engine, ABC):
    """An engine: applies ops and compiles steps.

    Attributes:
        name: its name for `kerasish.config.set_backend` and `KERASISH_BACKEND`.
        defines_by_run: whether steps run op by op, so that Python in them sees numbers.
    """

    name: str = ""
    defines_by_run = False

    @abstractmethod
    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Structure:
        """Return the result of `op` for `args`: a tensor, or a tuple of `op.outputs` tensors.

        The results equal those of `op.kernel`, the reference kernel, in shape and dtype. NaN and
        infinity are ordinary results: no warning, no error. If an input is tracked and records
        are on, the results are recorded; `kerasish.tensor.finish` does so. No result shares memory
        with an array that the caller may write to (`Tensor.borrowed`); `finish` copies such ones.

        Args:
            op: the op.
            args: one entry per input (of a variadic op: per element of its list): tensors or any
                argument of `kerasish.tensor.convert`; `prepare` converts them.
            attrs: all attributes of the op by name, not yet in canonical form.

        Raises:
            ShapeError: the inputs do not fit; `op.shape(*specs, **attrs)` raises it.
            SymbolicArgument: raised by `prepare`; do not catch it.
        """

    @abstractmethod
    def compile(self, function: Callable[..., Any], **options: Any) -> CompiledStep:
        """Return a step that does what `function` does.

        `function` takes structures of arrays or tensors and returns a structure of tensors. Its
        assignments to variables are made together when it has returned; an exception (including
        Ctrl-C) leaves every variable unchanged. While it runs, this backend receives the ops,
        unless the thread already has an engine (inside another step or a trace): that engine
        stays. A step may be called from several threads at the same time.

        Args:
            function: the pure step.
            options: hints a backend may use or ignore: `name` for messages, `optimize`,
                `training` if the step trains a model (a backend may warn about slow parts).
        """

    def on(self, device: Device) -> Backend | None:
        """Return the backend that replaces this one on `device`; None if there is none.

        For None, the eager engine runs the steps of that device. The default supports every device:
        a backend that supports only the CPU returns None for `device.kind != "cpu"`.
        """
        return self

    def synchronize(self) -> None:
        """Wait until all work submitted so far is done."""

    def threads(self) -> int | None:
        """Return the number of threads a step may use now; None if sums do not depend on it."""
        return None

    def memory_report(self) -> dict[str, int]:
        """Return the memory of this backend, in bytes; {} if it is not known."""
        return {}
