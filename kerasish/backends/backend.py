"""The contract between the engines and the rest: what a backend has to offer.

A backend says HOW and WHERE ops run. It applies single ops (`apply`), and it turns a pure step,
a function of arrays that reads and assigns variables, into a callable (`compile`). An eager
backend's callable runs the function; a static one's traces it once per signature. Whatever the
engine, an assignment made inside a step takes effect when the step is over, all or none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from kerasish.devices import Device
from kerasish.ops.op import Op


class Backend(ABC):
    """An engine: applies ops and compiles steps.

    Attributes:
        name: what `kerasish.config.set_backend` and `KERASISH_BACKEND` call it.

    An engine may have `update_all(rule, settings, values, gradients, slots, rate, steps, decays)`,
    which makes an optimizer's update of all variables at once, or returns None where it cannot
    (see `optimizers/whole.py`).
    """

    name: str = ""

    @abstractmethod
    def apply(self, op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Return what `op` gives for `args`: a tensor, or a tuple of `op.outputs` tensors.

        `args` are tensors or whatever `kerasish.tensor.convert` takes; `prepare` makes them fit.
        If an input is tracked and records are on, the results must be recorded.
        """

    @abstractmethod
    def array(self, value: Any) -> Any:
        """Return a NumPy array's numbers as an array of this backend, on its device."""

    @abstractmethod
    def to_numpy(self, value: Any) -> Any:
        """Return one of this backend's arrays as a NumPy array."""

    @abstractmethod
    def compile(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """Return a callable that does what `function` does, as one step.

        `function` takes structures of arrays or tensors and returns a structure of tensors. Its
        assignments to variables are made together when it has returned; an exception (Ctrl-C
        among them) leaves every variable as it was.

        Args:
            function: the pure step.
            options: hints a backend may use or ignore: `name` for messages, `optimize`,
                `training` where the step trains a model (a backend may warn of what is slow).
        """

    def on(self, device: Device) -> Backend | None:
        """Return the backend that does this one's work on `device`; None if it has no such."""
        return self

    def synchronize(self) -> None:  # noqa: B027 (most backends have nothing to wait for)
        """Wait until all work handed in so far is done."""

    def threads(self) -> int | None:
        """Return how many threads a step may use now; None where sums do not depend on it."""
        return None

    def memory_report(self) -> dict[str, int]:
        """Return what this backend knows of its memory, in bytes; {} if nothing."""
        return {}
