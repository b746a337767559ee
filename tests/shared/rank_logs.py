"""Logs of all losses and metrics on several ranks, compared with those of one process.

`mpiexec -n 7 python rank_logs.py`: parts of the ranks train on 1,000 rows in batches of 128, with
333 for validation; then on fewer rows than ranks. One start of processes for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from package_values import package_values
from rank_parts import in_parts, join

import kerasish as keras
from kerasish.distribution import DataParallel
from kerasish.ranks import current_group, set_sharding

L, M, layers = keras.losses, keras.metrics, keras.layers
ROWS, HELD_OUT, BATCH, CLASSES = 1000, 333, 128, 4
FEWER = (1, 6)  # rows
TOLERANCE = 1e-6

ONE_HOT = [
    L.CategoricalCrossentropy, L.CategoricalFocalCrossentropy, L.CategoricalHinge, L.Dice,
    L.CosineSimilarity, L.KLDivergence, L.Tversky,
]  # fmt: skip
SPARSE = [L.SparseCategoricalCrossentropy, L.CategoricalGeneralizedCrossEntropy]
BINARY = [L.BinaryCrossentropy, L.BinaryFocalCrossentropy, L.Hinge, L.SquaredHinge]
NUMBERS = [
    L.Huber, L.LogCosh, L.MeanAbsoluteError, L.MeanAbsolutePercentageError, L.MeanSquaredError,
    L.MeanSquaredLogarithmicError, L.Poisson,
]  # fmt: skip
# Circle compares the rows of a batch with each other: in shards, those of a shard.
LEFT_OUT = {"Circle"}
# On its own: SklearnScorer gathers rows on the host, and the base classes measure nothing.
NO_METRICS = {"Metric", "MeanMetricWrapper", "SklearnScorer", "Mean", "Sum"}


def one_hot_metrics() -> list[Any]:
    return [
        M.CategoricalAccuracy(), M.CategoricalCrossentropy(), M.CategoricalHinge(),
        M.CosineSimilarity(), M.KLDivergence(), M.F1Score(name="f1"), M.FBetaScore(beta=2.0),
        M.OneHotIoU(CLASSES, [0, 1]), M.OneHotMeanIoU(CLASSES), M.TopKCategoricalAccuracy(2),
    ]  # fmt: skip


def sparse_metrics() -> list[Any]:
    return [
        M.SparseCategoricalAccuracy(), M.SparseCategoricalCrossentropy(),
        M.SparseTopKCategoricalAccuracy(2), M.IoU(CLASSES, [0], sparse_y_pred=False),
        M.MeanIoU(CLASSES, sparse_y_pred=False),
    ]  # fmt: skip


def binary_metrics() -> list[Any]:
    return [
        M.AUC(), M.AUC(curve="PR", name="pr"), M.BinaryAccuracy(), M.BinaryCrossentropy(),
        M.BinaryIoU(), M.Precision(), M.Recall(), M.PrecisionAtRecall(0.5), M.Hinge(),
        M.RecallAtPrecision(0.5), M.SensitivityAtSpecificity(0.5), M.SquaredHinge(),
        M.SpecificityAtSensitivity(0.5), M.TruePositives(), M.TrueNegatives(),
        M.FalsePositives(), M.FalseNegatives(), M.Accuracy(name="exact"),
    ]  # fmt: skip


def number_metrics() -> list[Any]:
    return [
        M.ConcordanceCorrelation(), M.LogCoshError(), M.MeanAbsoluteError(),
        M.MeanAbsolutePercentageError(), M.MeanSquaredError(), M.MeanSquaredLogarithmicError(),
        M.PearsonCorrelation(), M.Poisson(), M.R2Score(), M.RootMeanSquaredError(),
    ]  # fmt: skip


def data(rows: int) -> tuple[Any, dict[str, Any]]:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((rows, 6), dtype=np.float32)
    y = rng.integers(0, CLASSES, rows)
    numbers = np.abs(x @ rng.standard_normal((6, 2))).astype("float32") + 0.5
    return x, {
        "one_hot": np.eye(CLASSES, dtype="float32")[y],
        "sparse": y.astype("int32"),
        "binary": (y % 2)[:, None].astype("float32"),
        "numbers": numbers,
        "labels": rng.integers(1, CLASSES, (rows, 2)).astype("int32"),
    }


# Name -> (targets, activation and size of the output, losses, metrics).
KINDS: dict[str, tuple[str, int, list[Any], Any]] = {
    "one_hot": ("softmax", CLASSES, ONE_HOT, one_hot_metrics),
    "sparse": ("softmax", CLASSES, SPARSE, sparse_metrics),
    "binary": ("sigmoid", 1, BINARY, binary_metrics),
    "numbers": ("softplus", 2, NUMBERS, number_metrics),
    "labels": ("linear", 6 * CLASSES, [L.CTC], list),
}


def run(kind: str, rows: int) -> dict[str, list[float]]:
    """Return the logs of a training with all losses of a kind, each of a tower of its own."""
    activation, size, losses, make = KINDS[kind]
    keras.utils.clear_session()  # equal names on all ranks
    keras.utils.set_random_seed(3)
    inputs, outputs = keras.Input((6,)), {}
    for loss in losses:
        y = layers.Dense(size, activation)(layers.Dense(8, "tanh")(inputs))
        outputs[loss.__name__] = layers.Reshape((6, CLASSES))(y) if kind == "labels" else y
    model = keras.Model(inputs, outputs)
    model.compile(
        keras.optimizers.SGD(0.01),
        {loss.__name__: loss() for loss in losses},
        metrics={losses[0].__name__: make()} if make() else None,
    )
    x, targets = data(ROWS + HELD_OUT)
    y = targets[kind]

    def part(first: int, end: int) -> tuple[Any, dict[str, Any]]:
        return x[first:end], dict.fromkeys(outputs, y[first:end])

    held_out = part(ROWS, ROWS + HELD_OUT) if rows == ROWS else None
    history = model.fit(
        *part(0, rows), batch_size=BATCH, epochs=1, verbose=0, validation_data=held_out
    )
    return {k: np.asarray(v, "float64").tolist() for k, v in history.history.items()}


def logs_of(rows: int) -> dict[str, list[float]]:
    """Return "kind, log" -> values, of a training with each kind of loss."""
    return {f"{kind}, {k}": v for kind in KINDS for k, v in run(kind, rows).items()}


def check(found: dict[str, list[float]], expected: dict[str, list[float]]) -> None:
    """Compare the logs of some ranks with those of one process."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        error = float(np.max(np.abs(np.subtract(found[name], values))))
        # Correlations are differences of sums: their size is 1, however small they are.
        centered = name.endswith(("correlation", "r2_score"))
        size = 1.0 if centered else max(float(np.max(np.abs(values))), 1e-30)
        assert error <= TOLERANCE * size, (name, found[name], values)


def names_of(module: Any, base: type) -> set[str]:
    """Return the names of the classes that a module offers."""
    own = {
        n: v
        for n, v in package_values(module).items()
        if isinstance(v, type) and issubclass(v, base)
    }
    return {name for name, value in own.items() if value is not base}


def train(backend: str) -> dict[int, dict[str, list[float]]]:
    """Return the number of rows -> logs of the current group."""
    keras.config.set_backend(backend)
    group = current_group()
    set_sharding(DataParallel().sharding())
    if group.size == 1:
        return {rows: logs_of(rows) for rows in (ROWS, *FEWER)}
    return {rows: logs_of(rows) for rows in (ROWS, max(n for n in FEWER if n < group.size))}


def main() -> None:
    # What is compared is everything there is.
    compared = {loss.__name__ for _, _, many, _ in KINDS.values() for loss in many}
    assert names_of(L, L.Loss) - {"LossFunction"} - LEFT_OUT == compared
    measured = {type(m).__name__ for _, _, _, make in KINDS.values() for m in make()}
    assert names_of(M, M.Metric) - NO_METRICS == measured, names_of(M, M.Metric) ^ measured
    world = join(timeout=200)
    results = []
    # Each engine in one process, which the others are compared with; two ranks, three, ...
    for sizes, first_static in (((2, 3, 1, 1), 6), ((4, 3), 4), ((7,), 7)):
        with in_parts(*sizes) as group:
            backend = "eager" if world.rank < first_static else "static"
            results.append((group.size, backend, train(backend)))
    results = [result for those in world.gather(results) for result in those]
    if world.rank == 0:
        expected = {backend: logs for size, backend, logs in results if size == 1}
        for size, backend in sorted({result[:2] for result in results if result[0] > 1}):
            own = [logs for *case, logs in results if case == [size, backend]]
            assert len(own) == size and all(repr(logs) == repr(own[0]) for logs in own)
            for rows, logs in own[0].items():
                check(logs, expected[backend][rows])
                print(f"{size} ranks, {backend}, {rows} rows: {len(logs)} logs equal", flush=True)


if __name__ == "__main__":
    main()
