"""From the parameters of an estimator to a compiled model."""

from __future__ import annotations

import copy
import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from kerasish import losses, metrics, optimizers
from kerasish.engine import Model
from kerasish.typing import Structure
from kerasish.wrappers.parameters import RoutedParameters
from kerasish.wrappers.perceptron import build_perceptron
from kerasish.wrappers.routing import (
    check_names,
    make,
    make_each,
    named_parameters,
    part,
    takes_any,
)

_OWN_MODEL = ("hidden_layer_sizes", "activation", "alpha")


class ModelBuilding(RoutedParameters, ABC):
    """Makes a model from `model`, `optimizer`, `loss`, `metrics` and their routed parameters."""

    model: Any
    build_fn: Any
    optimizer: Any
    loss: Any
    metrics: Any
    run_eagerly: Any

    _keras_build_fn: Any = None  # a method of subclasses, as in SciKeras

    def _builder(self) -> Structure:
        if self.model is None and self.build_fn is None:
            return self._keras_build_fn
        return self.build_fn if self.model is None else self.model

    def _own_model(self) -> bool:
        """Return whether the built-in MLP is used."""
        return self._builder() is None

    def _meta(self) -> dict[str, Any]:
        """Return the description of the data that model functions get as `meta`."""
        return {k: v for k, v in vars(self).items() if k.endswith("_") and k != "model_"}

    def _make_model(self) -> Model:
        """Return a new compiled model."""
        if self.build_fn is not None and self.model is None:
            warnings.warn("build_fn is the old name of model.", DeprecationWarning, stacklevel=5)
        builder = self._builder()
        self._check_routed(builder)
        wanted = part(self._routed, "model")
        asked: set[str] = set()
        if builder is None:
            own = {k: getattr(self, k) for k in _OWN_MODEL}
            check_names(wanted, _OWN_MODEL, "model", "the built-in model")
            model = build_perceptron(self._meta(), **{**own, **wanted})
        elif isinstance(builder, Model):
            check_names(wanted, (), "model", "a ready model, which takes none")
            model = copy.deepcopy(builder)
        elif callable(builder):
            model, asked = self._call_builder(builder, wanted)
        else:
            raise TypeError(
                "model: expected a model, a function that returns one, a Model class or None, "
                f"got {builder!r}."
            )
        if model.compiled:
            self._check_compiled(asked)
        else:
            model.compile(**self._compile_arguments(model))
        return model

    def _call_builder(
        self, builder: type | Callable[..., Any], wanted: dict[str, Any]
    ) -> tuple[Any, set[str]]:
        names, open_ended = named_parameters(builder), takes_any(builder)
        where = getattr(builder, "__name__", type(builder).__name__)
        if not open_ended:
            check_names(wanted, list(names), "model", f"{where}()")
        given = {k: v for k, v in self._routed.items() if "__" not in k}
        for name, value in self._own_params().items():
            needed = name in names and names[name].default is inspect.Parameter.empty
            if (
                name in names
                and name not in ("model", "build_fn")
                and (value is not None or needed)
            ):
                given[name] = value
        special: dict[str, Callable[[], Any]] = {
            "meta": self._meta,
            "compile_kwargs": lambda: self._compile_arguments(None),
            "params": self.get_params,
        }
        for name, value in special.items():
            if name in names:
                given[name] = value()
        model = builder(**{**given, **wanted})
        if not isinstance(model, Model):
            raise TypeError(f"model: {where}() returned {type(model).__name__}, expected a Model.")
        return model, set(names)

    def _check_compiled(self, asked: set[str]) -> None:
        if "compile_kwargs" in asked or "params" in asked:
            return
        for name in ("optimizer", "loss", "metrics"):
            given = getattr(self, name) is not None or part(self._routed, name)
            if given and name not in asked:
                warnings.warn(
                    f"{type(self).__name__}: the model is compiled, {name} has no effect; let "
                    "the model function take `compile_kwargs`, or return an uncompiled model.",
                    UserWarning,
                    stacklevel=6,
                )

    def _compile_arguments(self, model: Model | None) -> dict[str, Any]:
        routed = self._routed
        default = "adam" if self._own_model() else "rmsprop"
        results = {
            "optimizer": make(
                default if self.optimizer is None else self.optimizer,
                part(routed, "optimizer"), "optimizer", optimizers.get,
            ),
            "loss": self._make_loss(model),
            "metrics": self._make_metrics(),
        }  # fmt: skip
        if self.run_eagerly:
            results["run_eagerly"] = True
        extra = part(routed, "compile")
        check_names(extra, list(named_parameters(Model.compile)), "compile", "Model.compile")
        return {**results, **extra}

    def _make_loss(self, model: Model | None) -> Any:
        given = part(self._routed, "loss")
        if self.loss is None:
            result = self._default_loss(model)
            return make(result, given, "loss", losses.get) if given else result
        if isinstance(self.loss, (list, tuple)) or _is_collection(self.loss):
            return make_each(self.loss, given, "loss", losses.get)
        if given or isinstance(self.loss, type):
            return make(self.loss, given, "loss", losses.get)
        return self.loss

    def _make_metrics(self) -> list[Any] | None:
        given = part(self._routed, "metrics")
        if self.metrics is None:
            check_names(given, (), "metrics", "no metrics, which take none")
            return None
        several = isinstance(self.metrics, (list, tuple)) or _is_collection(self.metrics)
        listed = self.metrics if several else [self.metrics]
        return make_each(listed, given, "metrics", metrics.get)

    @abstractmethod
    def _default_loss(self, model: Model | None) -> Any:
        """Return the default loss for the targets seen in `fit`."""


def free_steps(model: Model | None) -> None:
    """Free the compiled steps of a model that an estimator no longer needs.

    A model's layers and symbolic tensors refer to each other, so the model is freed only by the
    garbage collector. Its programs and their memory, the largest part, are freed at once. If the
    model is used again, it is compiled again.
    """
    program = getattr(model, "training_program", None)
    if program is not None:
        program.drop_steps()


def _is_collection(value: type | str) -> bool:
    """Return whether a dict maps outputs to values and is not the config of one object."""
    return isinstance(value, dict) and "class_name" not in value
