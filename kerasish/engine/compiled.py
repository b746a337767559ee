"""What `compile` was given, matched to a model's outputs: losses and metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerasish import losses as losses_module
from kerasish import metrics as metrics_module
from kerasish import ops
from kerasish.engine.step import total
from kerasish.errors import UnknownNameError
from kerasish.losses.loss import Loss, LossFunction
from kerasish.metrics.metric import Metric


def _names_and_outputs(y_pred: Any, output_names: list[str]) -> list[tuple[Any, str]]:
    """Return (key, name) of each output: key finds it in y_pred, name stands in reports."""
    if isinstance(y_pred, dict):
        return [(k, str(k)) for k in sorted(y_pred)]
    if isinstance(y_pred, (list, tuple)):
        count = len(y_pred)
        names = output_names if len(output_names) == count else [
            f"output_{i}" for i in range(count)
        ]  # fmt: skip
        return list(zip(range(count), names))
    return [(None, output_names[0] if output_names else "output")]


def _part(structure: Any, key: Any, name: str, count: int) -> Any:
    """Return what a structure (a y, weights, losses...) holds for one output; None if nothing."""
    if structure is None or key is None:
        return structure[0] if isinstance(structure, (list, tuple)) and len(structure) == 1 else (
            structure.get(name) if isinstance(structure, dict) and name in structure else
            next(iter(structure.values())) if isinstance(structure, dict) and len(structure) == 1
            else structure
        )  # fmt: skip
    if isinstance(structure, dict):
        return structure.get(key, structure.get(name))
    if isinstance(structure, (list, tuple)) and isinstance(key, int):
        return structure[key] if key < len(structure) else None
    if isinstance(structure, (list, tuple)):
        return None
    return structure if count == 1 else None


def _check_keys(given: Any, outputs: list[tuple[Any, str]], what: str) -> None:
    if isinstance(given, dict):
        known = {str(k) for k, _ in outputs} | {n for _, n in outputs}
        for key in given:
            if str(key) not in known and len(outputs) > 1:
                raise UnknownNameError.of(f"output in {what}", key, [n for _, n in outputs])
    elif isinstance(given, (list, tuple)) and len(outputs) > 1 and len(given) != len(outputs):
        raise ValueError(
            f"{what}: {len(given)} entries for {len(outputs)} outputs {[n for _, n in outputs]}."
        )


class CompiledLoss:
    """The loss of all outputs: a weighted sum, each part also tracked on its own."""

    def __init__(self, loss: Any, loss_weights: Any, output_names: list[str]) -> None:
        if loss_weights is not None and not isinstance(
            loss_weights, (int, float, list, dict, tuple)
        ):
            raise TypeError(f"loss_weights: expected a number, list or dict, got {loss_weights!r}.")
        self.loss, self.loss_weights, self.output_names = loss, loss_weights, output_names
        self.parts: list[tuple[Any, str, Loss, float]] | None = None
        self.trackers: list[Metric] = []

    def build(self, y_true: Any, y_pred: Any) -> None:
        """Match losses to outputs."""
        outputs = _names_and_outputs(y_pred, self.output_names)
        _check_keys(self.loss, outputs, "loss")
        _check_keys(self.loss_weights, outputs, "loss_weights")
        shared = not isinstance(self.loss, (list, tuple)) and not (
            isinstance(self.loss, dict) and "class_name" not in self.loss
        )
        self.parts = []
        for key, name in outputs:
            one = self.loss if shared else _part(self.loss, key, name, len(outputs))
            if one is None:
                continue
            weight = self.loss_weights
            if not isinstance(weight, (int, float)):
                weight = _part(weight, key, name, len(outputs))
            self.parts.append((key, name, find_loss(one), 1.0 if weight is None else float(weight)))
        if not self.parts:
            raise ValueError("compile: no output has a loss.")
        if len(outputs) > 1:
            self.trackers = [
                metrics_module.Mean(name=f"{name}_loss") for _, name, _, _ in self.parts
            ]

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if self.parts is None:
            self.build(y_true, y_pred)
        parts = self.parts or []
        outputs = _names_and_outputs(y_pred, self.output_names)
        if len(parts) > 1 and isinstance(y_true, (list, tuple)) and len(y_true) != len(outputs):
            raise ValueError(f"The model has {len(outputs)} outputs, y has {len(y_true)} parts.")
        found = []
        for i, (key, name, loss, weight) in enumerate(parts):
            prediction = y_pred if key is None else y_pred[key]
            target = _part(y_true, key, name, len(outputs))
            weights = _part(sample_weight, key, name, len(outputs))
            if weights is None and len(outputs) > 1 and hasattr(sample_weight, "shape"):
                weights = sample_weight
            if target is None:
                raise ValueError(f"The output {name!r} has a loss but no target in y.")
            value = loss(target, prediction, sample_weight=weights)
            if self.trackers:
                rows = float(prediction.shape[0]) if prediction.shape else 1.0
                self.trackers[i].update_state(value, sample_weight=rows)
            found.append(value if weight == 1.0 else ops.multiply(value, weight))
        return total(found)


def find_loss(identifier: Any) -> Loss:
    """Return the loss for a name, config, function or object."""
    found = losses_module.get(identifier)
    if isinstance(found, Loss):
        return found
    name = getattr(found, "__name__", type(found).__name__)
    return LossFunction(found, name=name)


# Shapes decide which accuracy or cross-entropy a plain name means.
_BY_SHAPE = {
    "accuracy": ("BinaryAccuracy", "CategoricalAccuracy", "SparseCategoricalAccuracy"),
    "acc": ("BinaryAccuracy", "CategoricalAccuracy", "SparseCategoricalAccuracy"),
    "crossentropy": (
        "BinaryCrossentropy", "CategoricalCrossentropy", "SparseCategoricalCrossentropy",
    ),
    "ce": ("BinaryCrossentropy", "CategoricalCrossentropy", "SparseCategoricalCrossentropy"),
}  # fmt: skip


def find_metric(identifier: Any, y_true: Any, y_pred: Any) -> Metric:
    """Return the metric for a name, config, function or object, fit for these shapes."""
    if isinstance(identifier, str) and identifier.lower() in _BY_SHAPE:
        binary, categorical, sparse = _BY_SHAPE[identifier.lower()]
        true, pred = tuple(y_true.shape), tuple(y_pred.shape)
        if pred and pred[-1] == 1 or not pred:
            chosen = binary
        elif len(true) < len(pred) or true[-1] == 1 and pred[-1] > 1:
            chosen = sparse
        else:
            chosen = categorical
        return getattr(metrics_module, chosen)(name=identifier)  # type: ignore[no-any-return]
    if isinstance(identifier, type) and issubclass(identifier, Metric):
        return identifier()
    found = metrics_module.get(identifier)
    if isinstance(found, Metric):
        if isinstance(identifier, str):
            found.name = identifier
        return found
    name = identifier if isinstance(identifier, str) else _function_name(found)
    return metrics_module.MeanMetricWrapper(found, name=name)


def _function_name(f: Callable[..., Any]) -> str:
    return getattr(f, "__name__", None) or type(f).__name__


class CompiledMetrics:
    """The metrics of all outputs; `metrics` ignore sample weights, `weighted_metrics` use them."""

    def __init__(self, metrics: Any, weighted_metrics: Any, output_names: list[str]) -> None:
        self.given, self.weighted = metrics, weighted_metrics
        self.output_names = output_names
        self.parts: list[tuple[Any, str, Metric, bool, str]] | None = None
        for which, value in (("metrics", metrics), ("weighted_metrics", weighted_metrics)):
            if value is not None and not isinstance(value, (list, tuple, dict)):
                raise ValueError(f"compile: {which} must be a list or dict, got {value!r}.")

    def build(self, y_true: Any, y_pred: Any) -> None:
        """Match metrics to outputs and make them."""
        outputs = _names_and_outputs(y_pred, self.output_names)
        self.parts = []
        for given, weighted in ((self.given, False), (self.weighted, True)):
            if not given:
                continue
            _check_keys(given, outputs, "metrics")
            nested = isinstance(given, dict) or any(isinstance(m, (list, tuple)) for m in given)
            per_output = nested or len(outputs) > 1
            for key, name in outputs:
                if per_output:
                    mine = _part(given, key, name, len(outputs))
                else:
                    mine = given
                if mine is None:
                    continue
                mine = mine if isinstance(mine, (list, tuple)) else [mine]
                target = _part(y_true, key, name, len(outputs))
                prediction = y_pred if key is None else y_pred[key]
                for identifier in mine:
                    if identifier is None:
                        continue
                    metric = find_metric(identifier, target, prediction)
                    shown = metric.name if key is None else f"{name}_{metric.name}"
                    taken = {p[4] for p in self.parts}
                    if shown in taken:
                        shown = f"weighted_{shown}" if weighted else _next_free(shown, taken)
                    self.parts.append((key, name, metric, weighted, shown))

    @property
    def metrics(self) -> list[Metric]:
        """The metrics, once they are made."""
        return [p[2] for p in self.parts or []]

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Take in a batch."""
        if self.parts is None:
            self.build(y_true, y_pred)
        parts = self.parts or []
        count = len(_names_and_outputs(y_pred, self.output_names))
        for key, name, metric, weighted, _ in parts:
            prediction = y_pred if key is None else y_pred[key]
            target = _part(y_true, key, name, count)
            if not weighted:
                metric.update_state(target, prediction)
                continue
            weights = _part(sample_weight, key, name, count)
            if weights is None and hasattr(sample_weight, "shape"):
                weights = sample_weight
            metric.update_state(target, prediction, sample_weight=weights)

    def result(self) -> dict[str, Any]:
        """Return name -> number of all metrics."""
        found: dict[str, Any] = {}
        for _, _, metric, _, shown in self.parts or []:
            value = metric.result()
            found.update(value if isinstance(value, dict) else {shown: value})
        return found


def _next_free(name: str, taken: set[str]) -> str:
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"
