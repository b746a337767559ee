"""What other packages need of a layer, as typed protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kerasish.engine.layer.operation import Node, Operation
from kerasish.tensor import Variable
from kerasish.typing import Config, Structure

if TYPE_CHECKING:
    from typing_extensions import Self


class Saved(Protocol):
    """A part of a model as weight files see it: `Layer` and `Optimizer` satisfy this."""

    name: str

    @property
    def variables(self) -> list[Variable]:
        """The variables of the part and of what it holds."""

    def save_own_variables(self, store: dict[Any, Any]) -> None:
        """Put the arrays of the part's own variables into `store`, by number."""

    def load_own_variables(self, store: Any) -> None:
        """Take the values of the part's own variables from `store`."""


class LayerGraph(Protocol):
    """The calls of a functional model, as other packages see them."""

    inputs: list[Any]  # symbolic tensors, as `outputs` are
    outputs: list[Any]
    nodes: list[Node]  # each after those that it needs
    operations: list[Operation]  # in Keras's order


class LayerLike(Saved, Protocol):
    """A layer as others see it: `Layer` satisfies this.

    Summaries, drawings, diagnostics, wrappers, callbacks, exports and files need no more of it.
    """

    inbound_nodes: list[Node]  # its symbolic calls, the first one first
    built: bool
    # What a class says of its `call`; a subclass with another `call` must say it again.
    layer_role: str
    result_activation: str
    # What the layer is. `Layer` has the default False.
    is_sequential: bool  # a `Sequential`
    runs_on_host: bool  # NumPy or Python computes it, never a compiled step
    takes_structures: bool  # it is folded: its input is a Python structure

    @property
    def layer_graph(self) -> LayerGraph | None:
        """The calls of a functional model; None where there are none, or not yet."""

    @property
    def trainable(self) -> bool:
        """Whether training changes the weights."""

    @property
    def compute_dtype(self) -> str | None:
        """The dtype in which it computes."""

    @property
    def weights(self) -> list[Variable]:
        """All weights, those of layers inside included."""

    @property
    def output(self) -> Structure:
        """The symbolic result of the first call."""

    def display_name(self) -> str:
        """Return how messages name the layer."""

    def flatten_layers(self, include_self: bool = ..., recursive: bool = ...) -> list[Any]:
        """Return the layers inside."""

    def own_variables(self) -> list[Variable]:
        """Return the variables that the layer holds itself, what can be trained first."""

    def stored_variables(self) -> list[Variable]:
        """Return the variables that the layer holds itself, in the order of files."""

    def get_config(self) -> Config:
        """Return the constructor's arguments."""

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return the layer that `get_config` describes."""

    def __call__(self, *args: Any, **kwargs: Any) -> Structure:
        """Compute the result."""
