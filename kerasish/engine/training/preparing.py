"""How a program builds layers, metrics and optimizer before, or in, its first step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kerasish import tree
from kerasish.backends import Backend
from kerasish.engine import diagnostics
from kerasish.engine.data.parts import assemble
from kerasish.engine.training import step
from kerasish.engine.training.compiled import CompiledLoss, CompiledMetrics
from kerasish.errors import TraceError
from kerasish.graph.abstract import infer, run_aside
from kerasish.ops.shapes import Spec
from kerasish.optimizers.division import Division
from kerasish.optimizers.optimizer import Optimizer
from kerasish.optimizers.segment_store import SegmentStore, divide_variables
from kerasish.ranks import Sharding, current_group, current_sharding
from kerasish.tensor import Tensor, Variable, convert, using_scope, wrap
from kerasish.typing import Array, Structure

if TYPE_CHECKING:
    from kerasish.engine.layer.layer import Layer
    from kerasish.engine.model.model import Model
    from kerasish.engine.training.interface import StepProgram


class PreparationMixin:
    """The part of `TrainingProgram` that prepares steps."""

    model: Model
    optimizer: Optimizer | None
    objective: CompiledLoss | None
    scores: CompiledMetrics | None
    _prepared: set[str]
    _by_values: bool
    _waiting: list[Callable[[], None]]
    _at_start: list[Variable]
    _known: dict[int, Variable]
    backend: Callable[[], Backend]
    require_optimizer: Callable[[], Optimizer]
    step_function: Callable[[str], Callable[..., Any]]
    sharding: Callable[[str], Sharding | None]
    replicate: Callable[..., None]
    drop_steps: Callable[[], None]

    def is_prepared(self, kind: str) -> bool:
        """Return whether `prepare` has run for a step."""
        return kind in self._prepared

    def prepare(
        self, kind: str, x: Structure, y: Structure = None, sample_weight: Structure = None
    ) -> None:
        """Run a step on shapes only: builds layers, metrics and optimizer, finds shape errors.

        Where Python in a step reads numbers, the step runs on the batch itself, and what it assigns
        is dropped. On an engine that defines by run, a model with user code is left to
        its first step: its Python runs once, on the numbers of the data.

        Args:
            kind: "train", "test" or "predict".
            x, y, sample_weight: a batch.
        """
        if kind in self._prepared:
            if kind == "train" and self.require_optimizer().built:
                self._divide_optimizer()
            return
        # On several ranks it must be known whether Python asks: they could take different ways.
        one_process = current_sharding() is None
        if one_process and self.backend().defines_by_run and _has_users_code(self.model):
            self._by_values = True
        else:
            try:
                self._infer(kind, x, y, sample_weight)
            except TraceError:
                self._by_values = True
                self.build_on(kind, x, y, sample_weight)
        self._prepared.add(kind)

    def _infer(self, kind: str, x: Structure, y: Structure, sample_weight: Structure) -> None:
        model = self.model
        specs = [_specs(part) for part in (x, y, sample_weight)]
        if kind == "predict":
            if not model.built:
                infer(self.step_function("predict"), specs[:1])
        else:
            if kind == "train":
                self._prepare_training(specs[0])
            if kind == "train" and not model.overrides("train_step"):
                infer(
                    step.quietly(lambda x, y, w: step.outline(cast("StepProgram", self), x, y, w)),
                    specs,
                )
            else:
                infer(self.step_function(kind), specs)

    def build_on(
        self, kind: str, x: Structure, y: Structure = None, sample_weight: Structure = None
    ) -> None:
        """Run a step on a batch and drop what it assigns: builds what is not built yet.

        Args:
            kind: "train", "test" or "predict".
            x, y, sample_weight: the batch.
        """
        batch = tree.map_structure(_as_tensor, (x, y, sample_weight))
        if kind == "predict":
            run_aside(self.step_function("predict"), batch[:1])
        elif kind == "train" and not self.model.overrides("train_step"):
            run_aside(functools.partial(step.outline, cast("StepProgram", self)), batch)
            self._build_optimizer()
        elif kind == "train":
            # The gradients of a training step of the user's need records.
            run_aside(self.step_function(kind), batch, records=True)
        else:
            run_aside(self.step_function(kind), batch)

    @property
    def reads_values(self) -> bool:
        """Whether Python in the model may read numbers, so that steps differ."""
        return self._by_values

    @property
    def is_built(self) -> bool:
        """Whether the variables of the model, the optimizer and the metrics are there."""
        parts = (self.objective, self.scores)
        optimizer = self.optimizer is None or self.optimizer.built
        matched = all(part is None or part.parts is not None for part in parts)
        return self.model.built and optimizer and matched

    def late_variables(self) -> list[Variable]:
        """Return the trainable variables, those of layers that have just been built among them."""
        new = [v for v in self.model.trainable_variables if id(v) not in self._known]
        variables = [*self._at_start, *new]
        optimizer = self.require_optimizer()
        # Slots that begin as copies of variables take the numbers before this step, as they do
        # where the optimizer is built before it.
        defines = self.backend().defines_by_run
        with using_scope(None) if defines else nullcontext():
            if not optimizer.built:
                self._build_optimizer()
            elif not optimizer.knows(variables):
                present = {id(v): v for v in (*optimizer.trainable_variables, *variables)}
                ordered = [present.pop(id(v)) for v in self.model.variables if id(v) in present]
                if not present:  # else it was built for another model, which `apply` refuses
                    optimizer.extend(ordered)
        return variables

    def check_all_known(self) -> None:
        """Raise if a layer was built since the step was made: its weights would not be trained."""
        new = [v.path for v in self.model.trainable_variables if id(v) not in self._known]
        if new:
            raise ValueError(
                f"{self.model.display_name()}: a training step on several ranks has built new "
                f"weights, {new[0]!r} first. Call the model on a batch that builds all of its "
                "layers before fit()."
            )

    def when_matched(self, check: Callable[[], None]) -> None:
        """Call `check` when losses and metrics are matched to the outputs: now, or in a step.

        Args:
            check: raises where training cannot go on; the step then changes nothing.
        """
        if self._by_values and self.objective is not None and self.objective.parts is None:
            self._waiting.append(check)
        else:
            check()

    def loss_known(self) -> None:
        """Run the checks that wait for the first loss."""
        while self._waiting:
            self._waiting.pop(0)()

    def _prepare_training(self, x: Structure) -> None:
        model = self.model
        if not model.built and not _steps_without_call(model):
            infer(lambda x: model(assemble(x), training=True), [x])
        self._build_optimizer()

    def _build_optimizer(self) -> None:
        model = self.model
        host = model.host_stage()
        if host is not None:
            host.check_trainable(model.display_name())
        variables = model.trainable_variables
        if not variables and model.weights:
            diagnostics.warn_once(
                model,
                "no weight is trainable, so training changes nothing. Set trainable=True on a "
                "layer and call compile() again.",
            )
        self._divide_optimizer()
        if self.require_optimizer().division is None:
            self.require_optimizer().build(variables)

    def _divide_optimizer(self) -> None:
        """Divide the optimizer's slots among the ranks, or make them whole, as set now."""
        sharding, optimizer = self.sharding("train"), self.require_optimizer()
        self.divide_variables()
        divides = sharding is not None and sharding.divides
        division = optimizer.division
        everything = sharding is not None and sharding.shard_optimizer
        if divides == (division is not None) and (
            division is None or division.everything == everything
        ):
            return
        self.drop_steps()  # they hold the variables of before
        if division is not None:
            division.undo()
        if divides and sharding is not None:
            self.replicate(sharding)  # some slots begin with the variables' values
            Division(optimizer, self.model.trainable_variables, sharding.group, everything)

    def divide_variables(self) -> None:
        """Divide the model's variables among the ranks, or make them whole, as set now."""
        sharding = current_sharding()
        divided = None
        if sharding is not None and sharding.group.size > 1:
            divided = sharding.divided
        if divided is None and not SegmentStore.ever:
            return  # before all layers are looked through: this is asked for each step
        variables = self.model.variables
        if divided is None and all(v.store is None for v in variables):
            return
        if divided is not None and sharding is not None:
            new = [v for v in variables if v.store is None and divided(v.path)]
            if new:
                self.replicate(sharding, new)
        if divide_variables(variables, current_group(), divided):
            self.drop_steps()  # they hold the variables of before


def _has_users_code(model: Layer) -> bool:
    """Return whether a layer has a `call` that kerasish does not define."""
    # Functions made by exec have no module.
    modules = (type(layer).call.__module__ or "" for layer in model.flatten_layers())
    return any(module.partition(".")[0] != _OWN for module in modules)


def _steps_without_call(model: Model) -> bool:
    """Return whether a training step of the user's may use built layers without `model.call`.

    The model of a generator and a discriminator has no `call`, or one that takes other inputs than
    the training data.
    """
    inner = [layer for layer in model.flatten_layers() if layer is not model]
    return model.overrides("train_step") and bool(inner) and all(layer.built for layer in inner)


_OWN = __name__.partition(".")[0]


def _as_tensor(x: Array) -> Any:
    numbers = isinstance(x, np.ndarray) and x.dtype.kind not in "OUS"
    return convert(x) if numbers else x


def _specs(structure: Structure) -> Structure:
    def spec(x: Array) -> Any:
        if isinstance(x, (Tensor, Variable)):
            return Spec(tuple(x.shape), x.dtype)
        if isinstance(x, np.ndarray) and x.dtype.kind not in "OUS":
            return Spec(x.shape, wrap(x).dtype)
        return x

    return tree.map_structure(spec, structure)
