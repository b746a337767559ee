"""What `compile` was given, matched to a model's outputs: losses and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from kerasish import losses as losses_module
from kerasish import metrics as metrics_module
from kerasish import ops, tree
from kerasish.engine.diagnostics import Match, check_shapes
from kerasish.engine.training.loss_parts import is_one, spread
from kerasish.engine.training.outputs import (
    ModelOutput,
    at,
    joined,
    list_outputs,
    part_for,
    targets_of,
    weights_for,
)
from kerasish.engine.training.step import total
from kerasish.errors import ShapeError, UnknownKeyError
from kerasish.losses.loss import Loss, LossFunction
from kerasish.metrics.metric import Metric
from kerasish.metrics.scorer import is_scorer
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, Structure


def _check_names(
    given: dict[str, Any] | float | Sequence[Any] | None, outputs: list[ModelOutput], what: str
) -> None:
    """Raise where a dict or list that `compile` was given does not fit the outputs."""
    count = len(outputs)
    if isinstance(given, dict):
        keys = {o.path[0] for o in outputs if o.path}
        names = {k for k in keys if isinstance(k, str)} | {o.layer for o in outputs if o.layer}
        for key in given:
            if names and key not in keys and key not in names:
                raise UnknownKeyError.of(f"output in {what}", key, names)
    elif isinstance(given, (list, tuple)) and count > 1:
        top = len({o.path[0] for o in outputs})
        if len(given) not in (count, top):
            shown = [o.label or o.layer or f"number {o.index}" for o in outputs]
            raise ValueError(f"{what}: {len(given)} entries for {count} outputs {shown}.")


class _LossPart(NamedTuple):
    output: ModelOutput
    loss: Loss
    weight: float
    tracker: int  # which tracker shows it


class CompiledLoss:
    """The loss of all outputs: a weighted sum, each part also tracked on its own."""

    def __init__(
        self,
        loss: Structure,
        loss_weights: dict[str, Any] | str | float | Sequence[Any] | None,
        output_names: list[str],
    ) -> None:
        if loss_weights is not None and not isinstance(
            loss_weights, (int, float, list, dict, tuple)
        ):
            raise TypeError(f"loss_weights: expected a number, list or dict, got {loss_weights!r}.")
        self.loss, self.loss_weights, self.output_names = loss, loss_weights, output_names
        self.parts: list[_LossPart] | None = None
        self.trackers: list[Metric] = []
        self.shapes: list[tuple[int, ...]] = []
        self.outputs = 0

    def build(self, y_true: Structure, y_pred: Structure) -> None:
        """Match losses to outputs."""
        outputs = list_outputs(y_pred, self.output_names)
        given = self._match(y_pred, outputs)
        weights = self._weights([o for o, _ in given], outputs)
        targets = targets_of([o for o, _ in given], y_true, y_pred, len(outputs))
        parts, names, shapes = [], [], []
        places: list[ModelOutput] = []
        for (output, one), weight, target in zip(given, weights, targets):
            prediction = at(y_pred, output.path)
            result = find_loss(one, target, prediction)
            shapes.append(tuple(getattr(prediction, "shape", ())))
            if output not in places:  # several losses of one output are shown as their sum
                places.append(output)
                own = one if isinstance(one, str) else result.name
                names.append(f"{output.label or output.layer or own}_loss")
            parts.append(_LossPart(output, result, weight, places.index(output)))
        if not parts:
            raise ValueError("compile: no output has a loss.")
        if len(parts) > 1:
            self.trackers = [metrics_module.Mean(name=n) for n in _distinct(names)]
        self.parts, self.shapes, self.outputs = parts, shapes, len(outputs)

    def _match(
        self, y_pred: Structure, outputs: list[ModelOutput]
    ) -> list[tuple[ModelOutput, Any]]:
        """Return each loss that `compile` was given, with the output(s) that it reads."""
        _check_names(self.loss_weights, outputs, "loss_weights")
        if is_one(self.loss):
            return [(o, self.loss) for o in outputs if self.loss is not None]
        if isinstance(self.loss, dict) or all(map(is_one, self.loss)):
            _check_names(self.loss, outputs, "loss")
        results = [(joined(p, outputs), one) for p, one in spread(self.loss, y_pred, outputs)]
        paths = [o.path for o in outputs]
        return sorted(results, key=lambda pair: _first(pair[0].path, paths))

    def matches(self, y_true: Structure, sample_weight: Structure = None) -> list[Match]:
        """Return each output that has a loss, with its targets; none before the first batch."""
        parts = self.parts or []
        targets = targets_of([p.output for p in parts], y_true, None, self.outputs)
        return [
            Match(
                p.output.label, p.output.index, p.loss, shape, target,
                weights_for(p.output, sample_weight, self.outputs),
            )
            for p, shape, target in zip(parts, self.shapes, targets)
            if p.output.index >= 0
        ]  # fmt: skip

    def _weights(self, read: list[ModelOutput], outputs: list[ModelOutput]) -> list[float]:
        """Return the factor of each loss."""
        plain = all(o.index >= 0 for o in read) and len(set(read)) == len(read)
        if plain or self.loss_weights is None or isinstance(self.loss_weights, (int, float)):
            return [self._weight(o, len(outputs)) for o in read]
        flat = [w for w in tree.flatten(self.loss_weights) if w is not None]
        if len(flat) != len(read):
            raise ValueError(f"loss_weights: {len(flat)} numbers for {len(read)} losses.")
        return [float(w) for w in flat]

    def _weight(self, output: ModelOutput, count: int) -> float:
        weights = self.loss_weights
        if not isinstance(weights, (int, float)):
            weights = part_for(output, weights, count)
        return 1.0 if weights is None else float(weights)

    def __call__(
        self, y_true: Structure, y_pred: Structure, sample_weight: Structure = None
    ) -> Tensor:
        """Return the weighted sum of the losses of all outputs."""
        if self.parts is None:
            self.build(y_true, y_pred)
        parts = self.parts or []
        if len(parts) == 1 and type(y_pred) is type(y_true) is Tensor:
            return self._loss_of_one(parts[0], y_true, y_pred, sample_weight)
        count = len(tree.flatten(y_pred)) if isinstance(y_pred, (dict, list, tuple)) else 1
        targets = targets_of([p.output for p in parts], y_true, y_pred, count)
        results: list[Any] = []
        shown: dict[int, list[Any]] = {p.tracker: [] for p in parts}
        rows: dict[int, float] = {}
        for part, target in zip(parts, targets):
            output, weight = part.output, part.weight
            prediction = at(y_pred, output.path)
            if target is None and y_true is not None:
                name = output.label or output.layer or f"number {output.index}"
                raise ValueError(
                    f"The output {name!r} has a loss but no target in y, which has "
                    f"{_described(y_true)} for {count} outputs."
                )
            check_shapes(part.loss, target, prediction, output.label)
            weights = weights_for(output, sample_weight, count)
            value = part.loss(target, prediction, sample_weight=weights)
            shown[part.tracker].append(value)
            rows[part.tracker] = _rows(prediction)
            results.append(value if weight == 1.0 else ops.multiply(value, weight))
        for i, tracker in enumerate(self.trackers):
            tracker.update_state(total(shown[i]), sample_weight=rows[i])
        return total(results)

    @staticmethod
    def _loss_of_one(
        part: _LossPart, target: Tensor, prediction: Tensor, sample_weight: Structure
    ) -> Tensor:
        """Return the loss of a model's only output."""
        check_shapes(part.loss, target, prediction, part.output.label)
        weights = weights_for(part.output, sample_weight, 1)
        value = part.loss(target, prediction, sample_weight=weights)
        return value if part.weight == 1.0 else ops.multiply(value, part.weight)


def _rows(prediction: Structure) -> float:
    first = tree.flatten(prediction)[0]
    return float(first.shape[0]) if first.shape else 1.0


def _first(path: tuple[Any, ...], paths: list[tuple[Any, ...]]) -> int:
    """Return the number of the first output below a path."""
    return next(i for i, p in enumerate(paths) if p[: len(path)] == path)


def _described(y: Structure) -> str:
    if isinstance(y, dict):
        return f"parts {sorted(map(str, y))}"
    return f"{len(y)} parts" if isinstance(y, (list, tuple)) else "one part"


def _distinct(names: list[str]) -> list[str]:
    results: list[str] = []
    for name in names:
        results.append(_next_free(name, results) if name in results else name)
    return results


def _next_free(name: str, taken: set[Any] | Sequence[str]) -> str:
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


def _meant(identifier: object, y_true: Structure, y_pred: Structure) -> str | None:
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


def check_known(losses: Structure, metrics: Sequence[Any]) -> None:
    """Check that each name among losses and metrics is known; their shapes do not matter.

    Raises:
        ValueError: a name that is not known.
    """
    for name in filter(_is_plain_name, tree.flatten(losses)):
        losses_module.get(name)
    for name in filter(_is_plain_name, tree.flatten(metrics)):
        if not is_scorer(name):
            metrics_module.get(name)


def _is_plain_name(identifier: Loss | Metric | str | None) -> bool:
    return isinstance(identifier, str) and identifier.lower() not in _BY_SHAPE


def find_loss(
    identifier: Loss | Callable[..., Any] | str, y_true: Structure = None, y_pred: Structure = None
) -> Loss:
    """Return the loss for a name, config, function or object, fit for these shapes."""
    meant = None if y_pred is None else _meant(identifier, y_true, y_pred)
    if meant in _CROSSENTROPIES:
        return getattr(losses_module, meant)(name=identifier)
    result = losses_module.get(identifier)
    if isinstance(result, Loss):
        return result
    return LossFunction(result, name=_function_name(result))


def find_metric(identifier: Any, y_true: AnyTensor, y_pred: AnyTensor) -> Metric:
    """Return the metric for a name, config, function or object, fit for these shapes."""
    meant = _meant(identifier, y_true, y_pred)
    if meant is not None:
        return getattr(metrics_module, meant)(name=identifier)
    if is_scorer(identifier):
        return metrics_module.SklearnScorer(identifier)
    result = metrics_module.get(identifier)
    if isinstance(result, Metric):
        if isinstance(identifier, str):
            result.name = identifier
        return result
    return metrics_module.MeanMetricWrapper(result, name=_function_name(result))


def _function_name(f: Callable[..., Any]) -> str:
    return getattr(f, "__name__", None) or type(f).__name__


class _MetricPart(NamedTuple):
    output: ModelOutput
    metric: Metric
    weighted: bool
    shown: str  # the name in reports


class CompiledMetrics:
    """The metrics of all outputs; `metrics` ignore sample weights, `weighted_metrics` use them."""

    def __init__(
        self,
        metrics: dict[str, Any] | str | Sequence[Any] | None,
        weighted_metrics: dict[str, Any] | Sequence[Any] | None,
        output_names: list[str],
    ) -> None:
        self.given, self.weighted = metrics, weighted_metrics
        self.output_names = output_names
        self.parts: list[_MetricPart] | None = None
        for which, value in (("metrics", metrics), ("weighted_metrics", weighted_metrics)):
            if value is not None and not isinstance(value, (list, tuple, dict)):
                raise ValueError(f"compile: {which} must be a list or dict, got {value!r}.")

    def build(self, y_true: Structure, y_pred: Structure) -> None:
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

    def update_state(
        self, y_true: Structure, y_pred: Structure, sample_weight: Structure = None
    ) -> None:
        """Update the metrics with a batch."""
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
                options["sample_weight"] = weights_for(output, sample_weight, count)
            try:
                metric.update_state(target, prediction, **options)
            except ShapeError as error:
                raise ShapeError(f"metrics: {shown!r}: {error}") from error

    def result(self) -> dict[str, Any]:
        """Return name -> number of all metrics."""
        results: dict[str, Any] = {}
        for _, metric, _, shown in self.parts or []:
            if not metric.on_host:
                value = metric.result()
                results.update(value if isinstance(value, dict) else {shown: value})
        return results

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
                weights = weights_for(output, sample_weight, count) if weighted else None
                target = part_for(output, y_true, count)
                metric.update_state(target, at(y_pred, output.path), sample_weight=weights)
        results = {p.shown: p.metric.result() for p in parts}
        for part in parts:
            part.metric.reset_state()
        return results


def _metrics_for(output: ModelOutput, given: Structure, count: int) -> list[Any]:
    """Return the metrics given for an output."""
    if count == 1 and isinstance(given, (list, tuple)):
        mine = given[0] if len(given) == 1 and isinstance(given[0], (list, tuple)) else given
    else:
        mine = part_for(output, given, count)
    many = mine if isinstance(mine, (list, tuple)) else [mine]
    return [m for m in many if m is not None]


def _shown(output: ModelOutput, name: str, weighted: bool, taken: set[str]) -> str:
    """Return the name under which an output's metric is reported, distinct from those taken."""
    # Inside nested outputs the layer's name says which one it is.
    label = output.layer if len(output.path) > 1 and output.layer and output.label else output.label
    prefix = f"{label}_" if label else ""
    shown = f"{prefix}{name}"
    if shown in taken and weighted:
        shown = f"{prefix}weighted_{name}"
    return _next_free(shown, taken) if shown in taken else shown
