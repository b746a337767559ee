"""What `compile` was given, matched to a model's outputs: losses and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from kerasish import losses as losses_module
from kerasish import metrics as metrics_module
from kerasish import ops, tree
from kerasish.engine.mistakes import Match, check_shapes
from kerasish.engine.step import total
from kerasish.errors import ShapeError, UnknownNameError
from kerasish.losses.loss import Loss, LossFunction
from kerasish.metrics.metric import Metric
from kerasish.metrics.scorer import is_scorer


class Output(NamedTuple):
    """One output of a model: where it stands among the results, and what it is called."""

    path: tuple[Any, ...]  # keys and indices that lead to it; () where it is all there is
    index: int  # type: ignore[assignment] # its number among all outputs
    layer: str  # the name of the layer that makes it; "" where that is not known
    label: str  # what stands before the names of its loss and metrics; "" for nothing


def list_outputs(y_pred: Any, output_names: Sequence[str]) -> list[Output]:
    """Return the outputs of a model that gave `y_pred`.

    Args:
        output_names: the names of the layers that make them, where they are known.

    Example:
        >>> import numpy as np
        >>> [o.label for o in list_outputs({"p": np.zeros(2), "q": np.zeros(2)}, [])]
        ['p', 'q']
    """
    found = tree.flatten_with_path(y_pred) if isinstance(y_pred, (dict, list, tuple)) else [((), 0)]
    known = len(output_names) == len(found)
    outputs = []
    for i, (path, _) in enumerate(found):
        layer = output_names[i] if known else ""
        words = [layer if isinstance(key, int) else str(key) for key in path]
        label = "/".join(w for w in words if w) if len(found) > 1 else ""
        outputs.append(Output(tuple(path), i, layer, label))
    return outputs


def at(structure: Any, path: Sequence[Any]) -> Any:
    """Return the part of a structure at the end of a path."""
    for key in path:
        structure = structure[key]
    return structure


def part_for(output: Output, structure: Any, count: int) -> Any:
    """Return what a structure (targets, weights, losses...) holds for an output; None for nothing.

    A structure is built like the outputs; or it is a dict by their layers' names, or a list in
    their order. For a single output it may be the thing itself, or hold that alone.

    Args:
        count: how many outputs there are.
    """
    node = structure
    for depth, key in enumerate(output.path):
        if isinstance(node, dict):
            node = node.get(key, node.get(output.layer))
        elif isinstance(node, (list, tuple)):
            # A list for outputs that are a dict: in their order.
            place = key if isinstance(key, int) else output.index if not depth else None
            node = node[place] if place is not None and place < len(node) else None
        elif node is None or count > 1:
            return None
    if count == 1 and isinstance(node, dict) and "class_name" not in node:
        return node.get(output.layer, next(iter(node.values())) if len(node) == 1 else None)
    if not output.path and isinstance(node, (list, tuple)) and len(node) == 1:
        return node[0]
    return node


def _check_names(given: Any, outputs: list[Output], what: str) -> None:
    """Raise where a dict or list that `compile` was given does not fit the outputs."""
    count = len(outputs)
    if isinstance(given, dict):
        keys = {o.path[0] for o in outputs if o.path}
        names = {k for k in keys if isinstance(k, str)} | {o.layer for o in outputs if o.layer}
        for key in given:
            if names and key not in keys and key not in names:
                raise UnknownNameError.of(f"output in {what}", key, names)
    elif isinstance(given, (list, tuple)) and count > 1:
        top = len({o.path[0] for o in outputs})
        if len(given) not in (count, top):
            shown = [o.label or o.layer or f"number {o.index}" for o in outputs]
            raise ValueError(f"{what}: {len(given)} entries for {count} outputs {shown}.")


def _sample_weights(output: Output, sample_weight: Any, count: int) -> Any:
    """Return an output's sample weights; one array is for all outputs."""
    if hasattr(sample_weight, "shape"):
        return sample_weight
    return part_for(output, sample_weight, count)


class _LossPart(NamedTuple):
    output: Output
    loss: Loss
    weight: float


class CompiledLoss:
    """The loss of all outputs: a weighted sum, each part also tracked on its own."""

    def __init__(self, loss: Any, loss_weights: Any, output_names: list[str]) -> None:
        if loss_weights is not None and not isinstance(
            loss_weights, (int, float, list, dict, tuple)
        ):
            raise TypeError(f"loss_weights: expected a number, list or dict, got {loss_weights!r}.")
        self.loss, self.loss_weights, self.output_names = loss, loss_weights, output_names
        self.parts: list[_LossPart] | None = None
        self.trackers: list[Metric] = []
        self.shapes: list[tuple[int, ...]] = []
        self.outputs = 0

    def build(self, y_true: Any, y_pred: Any) -> None:
        """Match losses to outputs."""
        outputs = list_outputs(y_pred, self.output_names)
        shared = not isinstance(self.loss, (list, tuple)) and not (
            isinstance(self.loss, dict) and "class_name" not in self.loss
        )
        if not shared:
            _check_names(self.loss, outputs, "loss")
        _check_names(self.loss_weights, outputs, "loss_weights")
        parts, names, shapes = [], [], []
        for output in outputs:
            one = self.loss if shared else part_for(output, self.loss, len(outputs))
            if one is None:
                continue
            target = part_for(output, y_true, len(outputs))
            prediction = at(y_pred, output.path)
            made = find_loss(one, target, prediction)
            shapes.append(tuple(getattr(prediction, "shape", ())))
            parts.append(_LossPart(output, made, self._weight(output, len(outputs))))
            own = one if isinstance(one, str) else made.name
            names.append(f"{output.label or own}_loss")
        if not parts:
            raise ValueError("compile: no output has a loss.")
        if len(parts) > 1:
            self.trackers = [metrics_module.Mean(name=n) for n in _distinct(names)]
        self.parts, self.shapes, self.outputs = parts, shapes, len(outputs)

    def matches(self, y_true: Any, sample_weight: Any = None) -> list[Match]:
        """Return each output that has a loss, beside its targets; none before the first batch."""
        count = self.outputs
        return [
            Match(
                output.label, output.index, loss, shape,
                part_for(output, y_true, count), _sample_weights(output, sample_weight, count),
            )
            for (output, loss, _), shape in zip(self.parts or (), self.shapes)
        ]  # fmt: skip

    def _weight(self, output: Output, count: int) -> float:
        weights = self.loss_weights
        if not isinstance(weights, (int, float)):
            weights = part_for(output, weights, count)
        return 1.0 if weights is None else float(weights)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return the weighted sum of the losses of all outputs."""
        if self.parts is None:
            self.build(y_true, y_pred)
        count = len(tree.flatten(y_pred)) if isinstance(y_pred, (dict, list, tuple)) else 1
        found = []
        for i, (output, loss, weight) in enumerate(self.parts or []):
            prediction = at(y_pred, output.path)
            target = part_for(output, y_true, count)
            if target is None and y_true is not None:
                name = output.label or output.layer or f"number {output.index}"
                raise ValueError(
                    f"The output {name!r} has a loss but no target in y, which has "
                    f"{_described(y_true)} for {count} outputs."
                )
            check_shapes(loss, target, prediction, output.label)
            weights = _sample_weights(output, sample_weight, count)
            value = loss(target, prediction, sample_weight=weights)
            if self.trackers:
                rows = float(prediction.shape[0]) if prediction.shape else 1.0
                self.trackers[i].update_state(value, sample_weight=rows)
            found.append(value if weight == 1.0 else ops.multiply(value, weight))
        return total(found)


def _described(y: Any) -> str:
    if isinstance(y, dict):
        return f"parts {sorted(map(str, y))}"
    return f"{len(y)} parts" if isinstance(y, (list, tuple)) else "one part"


def _distinct(names: list[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        found.append(_next_free(name, found) if name in found else name)
    return found


def _next_free(name: str, taken: Any) -> str:
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


# Shapes decide which accuracy or cross-entropy a plain name means: binary, categorical, sparse.
_CROSSENTROPIES = (
    "BinaryCrossentropy", "CategoricalCrossentropy", "SparseCategoricalCrossentropy",
)  # fmt: skip
_ACCURACIES = ("BinaryAccuracy", "CategoricalAccuracy", "SparseCategoricalAccuracy")
_BY_SHAPE = {
    "accuracy": _ACCURACIES,
    "acc": _ACCURACIES,
    "crossentropy": _CROSSENTROPIES,
    "ce": _CROSSENTROPIES,
}


def _meant(identifier: Any, y_true: Any, y_pred: Any) -> str | None:
    """Return the class that "accuracy" or "crossentropy" means for these shapes, or None."""
    if not isinstance(identifier, str) or identifier.lower() not in _BY_SHAPE:
        return None
    binary, categorical, sparse = _BY_SHAPE[identifier.lower()]
    pred = tuple(y_pred.shape)
    true = pred if y_true is None else tuple(y_true.shape)
    if not pred or pred[-1] == 1:
        return binary
    if len(true) < len(pred) or (true[-1] == 1 and pred[-1] > 1):
        return sparse
    return categorical


def find_loss(identifier: Any, y_true: Any = None, y_pred: Any = None) -> Loss:
    """Return the loss for a name, config, function or object, fit for these shapes."""
    meant = None if y_pred is None else _meant(identifier, y_true, y_pred)
    if meant in _CROSSENTROPIES:
        return getattr(losses_module, meant)(name=identifier)  # type: ignore[no-any-return]
    found = losses_module.get(identifier)
    if isinstance(found, Loss):
        return found
    return LossFunction(found, name=_function_name(found))


def find_metric(identifier: Any, y_true: Any, y_pred: Any) -> Metric:
    """Return the metric for a name, config, function or object, fit for these shapes."""
    meant = _meant(identifier, y_true, y_pred)
    if meant is not None:
        return getattr(metrics_module, meant)(name=identifier)  # type: ignore[no-any-return]
    if is_scorer(identifier):
        return metrics_module.SklearnScorer(identifier)
    found = metrics_module.get(identifier)
    if isinstance(found, Metric):
        if isinstance(identifier, str):
            found.name = identifier
        return found
    return metrics_module.MeanMetricWrapper(found, name=_function_name(found))


def _function_name(f: Callable[..., Any]) -> str:
    return getattr(f, "__name__", None) or type(f).__name__


class _MetricPart(NamedTuple):
    output: Output
    metric: Metric
    weighted: bool
    shown: str  # the name in reports


class CompiledMetrics:
    """The metrics of all outputs; `metrics` ignore sample weights, `weighted_metrics` use them."""

    def __init__(self, metrics: Any, weighted_metrics: Any, output_names: list[str]) -> None:
        self.given, self.weighted = metrics, weighted_metrics
        self.output_names = output_names
        self.parts: list[_MetricPart] | None = None
        for which, value in (("metrics", metrics), ("weighted_metrics", weighted_metrics)):
            if value is not None and not isinstance(value, (list, tuple, dict)):
                raise ValueError(f"compile: {which} must be a list or dict, got {value!r}.")

    def build(self, y_true: Any, y_pred: Any) -> None:
        """Match metrics to outputs and make them."""
        outputs = list_outputs(y_pred, self.output_names)
        parts: list[_MetricPart] = []
        for given, weighted in ((self.given, False), (self.weighted, True)):
            if not given:
                continue
            if isinstance(given, dict) or len(outputs) > 1:
                _check_names(given, outputs, "weighted_metrics" if weighted else "metrics")
            for output in outputs:
                target = part_for(output, y_true, len(outputs))
                prediction = at(y_pred, output.path)
                for identifier in _metrics_for(output, given, len(outputs)):
                    metric = find_metric(identifier, target, prediction)
                    shown = _shown(output, metric.name, weighted, {p.shown for p in parts})
                    parts.append(_MetricPart(output, metric, weighted, shown))
        self.parts = parts

    @property
    def metrics(self) -> list[Metric]:
        """The metrics, once they are made."""
        return [p.metric for p in self.parts or []]

    def of_output(self, index: int) -> list[Metric]:
        """Return the metrics of the output at a place, once they are made."""
        return [p.metric for p in self.parts or [] if p.output.index == index]

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Take in a batch."""
        if self.parts is None:
            self.build(y_true, y_pred)
        count = len(tree.flatten(y_pred)) if isinstance(y_pred, (dict, list, tuple)) else 1
        for output, metric, weighted, shown in self.parts or []:
            if metric.on_host:
                continue
            prediction = at(y_pred, output.path)
            target = part_for(output, y_true, count)
            options = {}
            if weighted:
                options["sample_weight"] = _sample_weights(output, sample_weight, count)
            try:
                metric.update_state(target, prediction, **options)
            except ShapeError as error:
                raise ShapeError(f"metrics: {shown!r}: {error}") from error

    def result(self) -> dict[str, Any]:
        """Return name -> number of all metrics."""
        found: dict[str, Any] = {}
        for _, metric, _, shown in self.parts or []:
            if not metric.on_host:
                value = metric.result()
                found.update(value if isinstance(value, dict) else {shown: value})
        return found

    def score(self, batches: Iterable[Any]) -> dict[str, Any]:
        """Return the results of the metrics that no step computes.

        Args:
            batches: (targets, predictions, sample weights) of each batch, as NumPy arrays.
        """
        parts = [p for p in self.parts or [] if p.metric.on_host]
        for part in parts:
            part.metric.reset_state()
        for y_true, y_pred, sample_weight in batches:
            count = len(tree.flatten(y_pred)) if isinstance(y_pred, (dict, list, tuple)) else 1
            for output, metric, weighted, _ in parts:
                weights = _sample_weights(output, sample_weight, count) if weighted else None
                target = part_for(output, y_true, count)
                metric.update_state(target, at(y_pred, output.path), sample_weight=weights)
        found = {p.shown: p.metric.result() for p in parts}
        for part in parts:
            part.metric.reset_state()
        return found


def _metrics_for(output: Output, given: Any, count: int) -> list[Any]:
    """Return the metrics given for an output."""
    if count == 1 and isinstance(given, (list, tuple)):
        mine = given[0] if len(given) == 1 and isinstance(given[0], (list, tuple)) else given
    else:
        mine = part_for(output, given, count)
    many = mine if isinstance(mine, (list, tuple)) else [mine]
    return [m for m in many if m is not None]


def _shown(output: Output, name: str, weighted: bool, taken: set[str]) -> str:
    """Return the name under which an output's metric is reported, distinct from those taken."""
    # Inside nested outputs the layer's name says which one it is.
    label = output.layer if len(output.path) > 1 and output.layer and output.label else output.label
    prefix = f"{label}_" if label else ""
    shown = f"{prefix}{name}"
    if shown in taken and weighted:
        shown = f"{prefix}weighted_{name}"
    return _next_free(shown, taken) if shown in taken else shown
