"""The contract between the engines and the rest: what a backend has to offer, and what it may.

A backend says HOW and WHERE ops run. It applies single ops (`apply`), and it turns a pure step,
a function of arrays that reads and assigns variables, into a `CompiledStep`. An eager backend's
step runs the function; a static one's traces it once per signature. Whatever the engine, an
assignment made inside a step takes effect when the step is over, all or none.

Only `apply` and `compile` must be written. Everything else has a default that is right and slow:
control flow runs in Python, functions composed of ops run op by op, updates variable by variable,
and `fit` calls the step once per batch.

These public names are part of the contract; `docs/backend.md` shows a backend made of them:

- `kerasish.ops.op`: `Op` (`kernel`, `shape`, `outputs`, traits), `using_engine(engine)` puts an
  current engine of all ops of this thread, `has_chosen_engine()` says whether one is;
- `kerasish.ops.shapes`: `Spec`, the shape and dtype that shape rules take;
- `kerasish.tensor`: `prepare` makes the inputs of an op fit, `concrete` gives a tensor's array,
  `finish` makes tensors of a kernel's arrays and records the op for the reverse pass;
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
        done: how many batches are done.
        left: how many are left.
    """

    done: int
    left: int

    def run(self, seconds: float, most: int | None = None) -> int:
        """Do batches until `seconds` have passed, or `most` are done; return how many."""


class Timing(NamedTuple):
    """How long one part of a step took: a record of a compiled step, or an op.

    Attributes:
        name: of the op or the kernel.
        layer: the names of the layers that it belongs to, joined by "/"; "" if none is known.
        result: dtype and shape of what it computes.
        seconds: the time.
        nbytes: bytes of what it reads and writes, each counted once.
        flops: the floating-point operations that it stands for; a multiply-add counts as two.
        line: "file:line" of the user's code that it comes from, "" where that is not known.
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
    """What a machine does at best, as measured.

    Attributes:
        flops: floating-point operations per second, of a large product of float32.
        nbytes: bytes read plus bytes written per second, of a large copy.
    """

    flops: float
    nbytes: float

    def share(self, timing: Timing) -> float:
        """Return the least time that a part can take here, by the time that it took.

        More than 1 is possible: what lies in a cache is read faster than memory.
        """
        least = max(timing.flops / self.flops, timing.nbytes / self.nbytes)
        return least / timing.seconds if timing.seconds > 0 else 0.0


class CompiledStep(ABC):
    """A pure step as a backend runs it."""

    # Whether `over_rows` may be called for blocks of a few batches of data that is not in memory.
    reads_blocks = False

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Structure:
        """Do the step: structures of arrays or tensors in, a structure of tensors out."""

    def call_reading(self, *args: Any) -> tuple[Structure, list[tuple[Variable, Tensor]] | None]:
        """Do the step; return its result, and each variable that it read, with its value then.

        None in place of the variables: the ops of the call have left their own records, so that
        derivatives flow through it.
        """
        return self(*args), None

    def call_timed(self, *args: Any) -> tuple[Structure, list[Timing]]:
        """Do the step; return its result, and how long each part took; [] if that is not known."""
        return self(*args), []

    def call_on_array(self, x: Array) -> Array | None:
        """Do a step of one array whose result is one tensor; return that as a new array.

        Returns:
            None where nothing has run: call the step instead.
        """
        return None

    def ready_call(self, x: Array, mark: object) -> Callable[[Array], Array | None] | None:
        """Return a function that does what `call_on_array` does, for arrays like this one alone.

        It returns None where `call_on_array` must be asked instead: where the array is of another
        dtype, or anything has changed since the mark.

        Args:
            x: an array that `call_on_array` has just taken.
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
            arrays: the data, equally many rows each.
            pack: flat list of batch parts -> the step's arguments.
            order: the numbers of the rows in turn.
            batch_size: rows per batch.
        """
        return None

    def note_data(self, data: Any, epoch: int) -> None:  # noqa: B027 (most steps need not know)
        """Note which data the batches of the coming epoch are taken from."""

    def memory_report(self) -> dict[str, int]:
        """Return what is known of the memory of the step's values, in bytes; {} if nothing.

        "planned" is what they take, "unshared" what they would take without sharing.
        """
        return {}

    def prepare(self, *args: Any) -> bool:
        """Get ready for calls with arguments like these, and run nothing.

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
        """Return what the machine does at best; None if that is not known."""
        return None

    def graphs(self) -> list[tuple[str, Any]]:
        """Return (title, graph) pairs: the step as traced, and as it runs; [] without graphs."""
        return []


class Backend(Engine, ABC):
    """An engine: applies ops and compiles steps.

    Attributes:
        name: what `kerasish.config.set_backend` and `KERASISH_BACKEND` call it.
        defines_by_run: whether steps run op by op, so that Python in them sees numbers.
    """

    name: str = ""
    defines_by_run = False

    @abstractmethod
    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Structure:
        """Return what `op` gives for `args`: a tensor, or a tuple of `op.outputs` tensors.

        The results equal those of `op.kernel`, the reference kernel, in shape and dtype. NaN and
        infinity are results like others: no warning, no error. If an input is tracked and records
        are on, the results are recorded; `kerasish.tensor.finish` does so. No result shares memory
        with an array that the caller may write to (`Tensor.borrowed`); `finish` copies such ones.

        Args:
            op: the op.
            args: one entry per input (of a variadic op: per element of its list): tensors or
                whatever `kerasish.tensor.convert` takes; `prepare` makes them fit.
            attrs: all attributes of the op by name, not yet in canonical form.

        Raises:
            ShapeError: the inputs do not fit; `op.shape(*specs, **attrs)` raises it.
            SymbolicArgument: raised by `prepare`; let it pass.
        """

    @abstractmethod
    def compile(self, function: Callable[..., Any], **options: Any) -> CompiledStep:
        """Return a step that does what `function` does.

        `function` takes structures of arrays or tensors and returns a structure of tensors. Its
        assignments to variables are made together when it has returned; an exception (Ctrl-C
        among them) leaves every variable as it was. While it runs, this backend receives the
        ops, unless the step is called where a thread has an engine already (inside another step
        or a trace): that one stays. A step may be called from several threads at a time.

        Args:
            function: the pure step.
            options: hints a backend may use or ignore: `name` for messages, `optimize`,
                `training` where the step trains a model (a backend may warn of what is slow).
        """

    def on(self, device: Device) -> Backend | None:
        """Return the backend that does this one's work on `device`; None if it has no such.

        Where None comes, the eager engine runs the steps of that device. The default serves every
        device: a backend that knows the CPU alone returns None for `device.kind != "cpu"`.
        """
        return self

    def synchronize(self) -> None:
        """Wait until all work handed in so far is done."""

    def threads(self) -> int | None:
        """Return how many threads a step may use now; None where sums do not depend on it."""
        return None

    def memory_report(self) -> dict[str, int]:
        """Return what this backend knows of its memory, in bytes; {} if nothing."""
        return {}
