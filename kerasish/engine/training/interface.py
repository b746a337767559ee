"""What the training step needs of a model and of its program, as typed protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kerasish.engine.data.data import Data
from kerasish.engine.functional.host_stage import HostStage
from kerasish.metrics.metric import Metric
from kerasish.metrics.reduction import Mean
from kerasish.optimizers.optimizer import Optimizer
from kerasish.tensor import Tensor, Variable
from kerasish.typing import Structure

if TYPE_CHECKING:
    from kerasish.engine.layer.operation import KerasTensor
    from kerasish.engine.model.model import Model


class TrainedModel(Protocol):
    """A model as its training program sees it: `Trainer`, and so `Model`, satisfies this."""

    name: str
    built: bool
    stop_training: bool
    initial_epoch: int

    @property
    def compute_dtype(self) -> str:
        """The dtype of computations."""

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs, where they are known."""

    @property
    def input_keys(self) -> list[str]:
        """The names by which inputs are distinguished, where they are known."""

    @property
    def input_count(self) -> int | None:
        """The number of inputs, where it is known."""

    @property
    def known_inputs(self) -> dict[str, KerasTensor]:
        """Key -> symbolic input, in the order of a flat list, where they are known."""

    @property
    def output_count(self) -> int | None:
        """The number of outputs, where it is known."""

    @property
    def weights(self) -> list[Variable]:
        """All weights."""

    @property
    def trainable_weights(self) -> list[Variable]:
        """The weights that training changes."""

    @property
    def trainable_variables(self) -> list[Variable]:
        """The variables that training changes."""

    @property
    def metrics(self) -> list[Metric]:
        """The metrics of `compile` and those held as attributes."""

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """Compute the outputs."""

    def display_name(self) -> str:
        """Return how messages name the model."""

    def host_stage(self) -> HostStage | None:
        """Return the part that runs on the host before each step."""

    def on_host(self, data: Data) -> Data:
        """Return data whose x has gone through the host stage."""

    def with_structures(self, x: Structure) -> Structure:
        """Return inputs with lists of Python structures as columns, where the model reads such."""

    def reset_metrics(self) -> None:
        """Reset the state of all metrics."""

    def overrides(self, method: str) -> bool:
        """Return whether a subclass overrides a method."""

    def train_step(self, data: Structure) -> Structure:
        """Do one training step."""

    def test_step(self, data: Structure) -> Structure:
        """Do one evaluation step."""

    def predict_step(self, data: Structure) -> Structure:
        """Return the results for a batch."""

    def compute_loss(
        self, x: Structure = ..., y: Structure = ..., y_pred: Structure = ...,
        sample_weight: Structure = ...,
        training: bool = ...,
    ) -> Structure:  # fmt: skip
        """Return the number that training minimizes."""

    def compute_metrics(
        self, x: Structure, y: Structure, y_pred: Structure, sample_weight: Structure = ...
    ) -> Structure:
        """Update the metrics with a batch."""

    def get_metrics_result(self) -> dict[str, Any]:
        """Return name -> number of all metrics."""

    def flatten_layers(self, include_self: bool = ..., recursive: bool = ...) -> list[Any]:
        """Return the layers inside."""


class StepProgram(Protocol):
    """A training program as a step sees it: `TrainingProgram` satisfies this."""

    model: Model
    optimizer: Optimizer | None
    loss_tracker: Mean | None

    @property
    def reads_values(self) -> bool:
        """Whether Python in the model may read numbers, so that steps differ."""

    def loss_known(self) -> None:
        """Run the checks that wait for the first loss."""

    def check_all_known(self) -> None:
        """Raise if a layer was built since the step was made."""

    def late_variables(self) -> list[Variable]:
        """Return the trainable variables, those of layers that have just been built among them."""

    def require_optimizer(self) -> Optimizer:
        """Return the optimizer; raise if there is none."""

    def apply_gradients(
        self, gradients: Sequence[Any], variables: Sequence[Variable], **signals: Any
    ) -> None:
        """Let the optimizer change variables by their gradients."""

    def update_metrics(
        self, x: Structure, y: Structure, y_pred: Structure, sample_weight: Structure
    ) -> None:
        """Update the metrics with a batch."""
