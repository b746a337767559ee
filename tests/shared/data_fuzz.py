"""Random trainings on data of special kinds: ragged, masked, sparse, folded; on quantized models.

A case is the same training in several ways: on both engines, and, where there is one, on the same
data as a dense array. All ways must give the same losses, predictions and weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

import kerasish as keras
from kerasish import config, fold, layers, ops, quantizers
from kerasish.data import Ragged
from kerasish.graph.passes import recurrences


class Way(NamedTuple):
    """One way of a case: how the model is made, trained and used."""

    name: str
    make: Callable[[], Any]
    fit: Callable[[Any], list[Any]]
    predict: Callable[[Any], list[Any]]


class Case(NamedTuple):
    """A random training.

    Attributes:
        text: what it is.
        ways: the first is what is tested; the others do the same in another way.
        tolerance: relative and absolute.
        block: the time steps that the static engine leaves out together.
    """

    text: str
    ways: list[Way]
    tolerance: float
    block: int = recurrences.BLOCK


def histories(history: Any) -> list[Any]:
    """Return the numbers of a training, in the order of their names."""
    return [values for _, values in sorted(history.history.items())]


def random_optimizer(rng: np.random.Generator) -> Callable[[], Any]:
    """Return a function that makes an optimizer whose updates are smooth in the gradients.

    Optimizers like Adam divide by the gradient, which turns rounding into whole steps where a
    gradient is zero.
    """
    options: dict[str, Any] = {"learning_rate": 0.05, "momentum": float(rng.choice([0, 0.9]))}
    if rng.random() < 0.2:
        options["clipnorm"] = 0.5
    if rng.random() < 0.1:
        options["use_ema"] = True
    return lambda: keras.optimizers.SGD(**options)


def compiled(model: Any, optimizer: Callable[[], Any]) -> Any:
    """Return the model, compiled."""
    model.compile(optimizer(), "mse", weighted_metrics=["mae"])
    return model


def weights_or_none(rng: np.random.Generator, count: int) -> Any:
    """Return sample weights, in some cases."""
    return rng.random(count).astype("float32") if rng.random() < 0.3 else None


# --- the kinds ----------------------------------------------------------------------------------

CELLS: dict[str, Callable[[bool], list[Any]]] = {
    "LSTM": lambda steps: [layers.LSTM(5, return_sequences=steps)],
    "GRU": lambda steps: [layers.GRU(5, return_sequences=steps)],
    "SimpleRNN": lambda steps: [layers.SimpleRNN(5, return_sequences=steps)],
    "Bidirectional": lambda steps: [layers.Bidirectional(layers.LSTM(3, return_sequences=steps))],
    "two": lambda steps: [
        layers.LSTM(4, return_sequences=True), layers.GRU(4, return_sequences=steps)
    ],
    "none": lambda steps: [],
}  # fmt: skip
PADDING = -9.0


def ragged(rng: np.random.Generator, seed: int) -> Case:
    """Sequences of different lengths and the same rows, padded, where one batch holds all."""
    count, most, batch = (int(rng.integers(*ends)) for ends in ((2, 14), (1, 30), (1, 14)))
    lengths = rng.integers(0 if rng.random() < 0.2 else 1, most + 1, count)
    tokens, steps, name = rng.random() < 0.6, rng.random() < 0.5, str(rng.choice(list(CELLS)))
    rows = [
        rng.integers(1, 20, n) if tokens else rng.normal(size=(n, 3)).astype("float32")
        for n in lengths
    ]
    y, weights = rng.normal(size=(count, 1)).astype("float32"), weights_or_none(rng, count)
    optimizer, shuffle = random_optimizer(rng), bool(rng.random() < 0.5)
    options = {"batch_size": batch, "epochs": 2, "shuffle": shuffle, "verbose": 0}

    def make() -> Any:
        inputs = keras.Input((None,), dtype="int32") if tokens else keras.Input((None, 3))
        first = layers.Embedding(20, 4, mask_zero=True) if tokens else layers.Masking(PADDING)
        x = first(inputs)
        for layer in CELLS[name](steps):
            x = layer(x)
        if len(x.shape) == 3:
            x = layers.GlobalAveragePooling1D()(x)
        return compiled(keras.Model(inputs, layers.Dense(1)(x)), optimizer)

    padded = (
        np.zeros((count, most), "int32") if tokens
        else np.full((count, most, 3), PADDING, "float32")
    )  # fmt: skip
    for row, values in zip(padded, rows):
        row[: len(values)] = values
    ways = [("ragged", Ragged(rows))]
    if batch >= count:  # else the batches hold other rows: ragged ones are sorted by length
        ways.append(("padded", padded))
    return Case(
        f"ragged {name}, tokens={tokens}, steps={steps}, lengths={lengths.tolist()}, {options}",
        [
            Way(
                way, make,
                lambda m, x=x: histories(m.fit(x, y, sample_weight=weights, **options)),
                lambda m, x=x: [m.predict(x, batch_size=batch, verbose=0)],
            )
            for way, x in ways
        ],
        5e-4,
    )  # fmt: skip


def random_mask(rng: np.random.Generator, count: int, steps: int) -> np.ndarray:
    """Return which time steps count: all but the last ones, or the first ones, or any."""
    kind = str(rng.choice(["tail", "head", "holes", "any"]))
    places = np.arange(steps)
    if kind == "any":
        return rng.random((count, steps)) < rng.choice([0.1, 0.5, 0.9])
    if kind == "holes":
        return np.repeat(rng.random((1, steps)) < 0.4, count, 0)
    lengths = rng.integers(0, steps + 1, (count, 1)) // int(rng.choice([1, 3]))
    return places < lengths if kind == "tail" else places >= steps - lengths


def masked(rng: np.random.Generator, seed: int) -> Case:
    """Recurrent layers whose masks leave out time steps, in blocks of a few."""
    count, steps, size, batch = (
        int(rng.integers(*ends)) for ends in ((1, 9), (1, 24), (1, 5), (1, 9))
    )  # fmt: skip
    names = [str(n) for n in rng.choice(["LSTM", "GRU", "SimpleRNN"], int(rng.integers(1, 4)))]
    options = [
        {
            "units": int(rng.integers(1, 6)), "go_backwards": bool(rng.random() < 0.2),
            "use_bias": bool(rng.random() < 0.8), "return_sequences": bool(rng.random() < 0.7),
            "zero_output_for_mask": bool(rng.random() < 0.2),
        }
        for _ in names
    ]  # fmt: skip
    for one in options[:-1]:
        one["return_sequences"] = True
    double, block = rng.random() < 0.3, int(rng.integers(1, 6))
    x = rng.normal(size=(count, steps, size)).astype("float32")
    counts = random_mask(rng, count, steps)
    x = np.where(counts[..., None], x, np.float32(PADDING))
    y, optimizer = rng.normal(size=(count, 1)).astype("float32"), random_optimizer(rng)
    fitting = {"batch_size": batch, "epochs": 2, "shuffle": False, "verbose": 0}

    def make() -> Any:
        inputs = keras.Input((steps, size))
        h = layers.Masking(PADDING)(inputs)
        for name, one in zip(names, options):
            layer = getattr(layers, name)(**one)
            h = (layers.Bidirectional(layer) if double else layer)(h)
        if len(h.shape) == 3:
            h = layers.GlobalAveragePooling1D()(h)
        return compiled(keras.Model(inputs, layers.Dense(1)(h)), optimizer)

    return Case(
        f"masked {names}, {options}, double={double}, block={block}, {counts.astype(int).tolist()}",
        [
            Way(
                "padded", make, lambda m: histories(m.fit(x, y, **fitting)),
                lambda m: [m.predict(x, batch_size=batch, verbose=0)],
            )
        ],
        5e-4,
        block,
    )  # fmt: skip


def sparse_matrix(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> Any:
    """Return a SciPy matrix as users have them: of any format, with repeats, zeros, any order."""
    density = float(rng.choice([0, 0.02, 0.1, 0.5]))
    x = scipy.sparse.random(*shape, density, "csr", "float32", random_state=int(rng.integers(9999)))
    if kind == "repeats":
        c = x.tocoo()
        entries = np.r_[c.data, c.data], (np.r_[c.row, c.row], np.r_[c.col, c.col])
        return scipy.sparse.coo_matrix(entries, shape=shape)
    if kind == "unsorted":
        x = x[:, ::-1].tocsr()
        x.has_sorted_indices = False
        return x
    if kind == "zeros":
        x.data[::2] = 0
        return x
    return x.astype("float64") if kind == "float64" else x.asformat(kind)


def sparse(rng: np.random.Generator, seed: int) -> Case:
    """Sparse rows and the same rows as an array."""
    count, width, batch = (int(rng.integers(*ends)) for ends in ((1, 20), (1, 40), (1, 8)))
    kind = str(rng.choice(["csr", "coo", "csc", "bsr", "repeats", "unsorted", "zeros", "float64"]))
    matrix = sparse_matrix(rng, (count, width), kind)
    dense = np.asarray(matrix.toarray(), "float32")
    y, weights = rng.normal(size=(count, 2)).astype("float32"), weights_or_none(rng, count)
    optimizer, shuffle = random_optimizer(rng), bool(rng.random() < 0.5)
    activation = str(rng.choice(["linear", "relu", "tanh", "softmax"]))
    more, two = rng.choice([None, "l2"], p=[0.8, 0.2]), rng.random() < 0.3
    bias = bool(rng.random() < 0.8)
    options = {"batch_size": batch, "epochs": 2, "shuffle": shuffle, "verbose": 0}

    def make(is_sparse: bool) -> Any:
        inputs = keras.Input((width,), sparse=is_sparse)
        x = layers.Dense(4, activation, use_bias=bias, kernel_regularizer=more)(inputs)
        if two:
            x = layers.Concatenate()([x, layers.Dense(3)(inputs)])
        return compiled(keras.Model(inputs, layers.Dense(2)(x)), optimizer)

    return Case(
        f"sparse {kind}, {count} x {width}, {activation}, two={two}, {more}, {options}",
        [
            Way(
                name, lambda is_sparse=name == "sparse": make(is_sparse),
                lambda m, x=x: histories(m.fit(x, y, sample_weight=weights, **options)),
                lambda m, x=x: [
                    m.predict(x, batch_size=batch, verbose=0),
                    m.evaluate(x, y, batch_size=batch, verbose=0),
                ],
            )
            for name, x in (("sparse", matrix), ("dense", dense))
        ],
        5e-4,
    )  # fmt: skip


def quantized(rng: np.random.Generator, seed: int) -> Case:
    """A layer that is trained, quantized, adapted by LoRA in some cases, and trained on."""
    count, width, units, batch = (
        int(rng.integers(1, most)) for most in (17, 33, 33, 9)
    )  # fmt: skip
    kind, mode = str(rng.choice(["Dense", "EinsumDense", "Embedding"])), "int8"
    if kind != "Embedding":
        mode = str(rng.choice(["int8", "int4", "float8"]))
    lora, before = mode != "float8" and rng.random() < 0.5, rng.random() < 0.4
    block, optimizer = int(rng.choice([-1, 1, 2, 8, 64])), random_optimizer(rng)
    x = (rng.normal(size=(count, width)) * float(rng.choice([1e-3, 1, 50]))).astype("float32")
    x[0] *= rng.random() > 0.2
    if kind == "Embedding":
        x = rng.integers(0, 11, (count, 3))
    y = rng.normal(size=(count, 2)).astype("float32")
    options = {"batch_size": batch, "shuffle": False, "verbose": 0}

    def make() -> Any:
        if kind == "Embedding":
            inputs, big = keras.Input((3,), dtype="int32"), layers.Embedding(11, units)
            h = layers.Flatten()(big(inputs))
        else:
            inputs = keras.Input((width,))
            big = (
                layers.Dense(units, "tanh") if kind == "Dense"
                else layers.EinsumDense("ab,bc->ac", units, "tanh", bias_axes="c")
            )  # fmt: skip
            h = big(inputs)
        model = compiled(keras.Model(inputs, layers.Dense(2)(h)), optimizer)
        if lora and before:
            big.enable_lora(2)
            model = compiled(model, optimizer)
        model.fit(x, y, **options)
        if mode == "int4":
            big.quantize(mode, config=quantizers.Int4QuantizationConfig(block_size=block))
        else:
            big.quantize(mode)
        if lora and not before:
            big.enable_lora(2)
        return compiled(model, optimizer)

    def predict(model: Any) -> list[Any]:
        return [model.predict(x, batch_size=batch, verbose=0)]

    return Case(
        f"quantized {kind} {mode}, {count} x {width} -> {units}, lora={lora}, before={before}, "
        f"block={block}, {options}",
        [Way(mode, make, lambda m: predict(m) + histories(m.fit(x, y, **options)), predict)],
        2e-2,
    )


class Tree(fold.Folded):
    """The vector of a tree whose nodes have any number of children."""

    def __init__(self, units: int, kind: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kind = kind
        self.word, self.join = layers.Embedding(9, units), layers.Dense(units, "tanh")
        self.gate = layers.Dense(units, "sigmoid")

    def visit(self, structure: Any) -> Any:
        """Return the vector of a tree."""
        if isinstance(structure, int):
            return self.word(structure)
        result, *parts = (self.visit(child) for child in structure)
        for part in parts:
            if self.kind == "join":
                result = self.join(ops.concatenate([result, part], axis=-1))
            else:
                result = result + part if self.kind == "sum" else ops.tanh(result * part + part)
        if self.kind == "gate":
            return self.gate(result) * result if len(parts) % 2 else self.join(result)
        return self.join(result) if self.kind == "sum" else result


def random_tree(rng: np.random.Generator, depth: int) -> Any:
    """Return nested tuples of word numbers."""
    if depth == 0 or rng.random() < 0.3:
        return int(rng.integers(9))
    return tuple(random_tree(rng, depth - 1) for _ in range(int(rng.integers(1, 4))))


def folded(rng: np.random.Generator, seed: int) -> Case:
    """Trees of any shape; batches need not use all layers."""
    count, batch, units = (int(rng.integers(1, most)) for most in (12, 6, 6))
    kind, optimizer = str(rng.choice(["sum", "gate", "join"])), random_optimizer(rng)
    trees = fold.Structures([random_tree(rng, int(rng.integers(0, 4))) for _ in range(count)])
    y = rng.normal(size=(count, 1)).astype("float32")
    options = {"batch_size": batch, "epochs": 2, "verbose": 0}

    def make() -> Any:
        return compiled(keras.Sequential([Tree(units, kind), layers.Dense(1)]), optimizer)

    return Case(
        f"folded {kind}, {units} units, {list(trees)}, {options}",
        [
            Way(
                "folded", make, lambda m: histories(m.fit(trees, y, **options)),
                lambda m: [m.predict(trees, batch_size=batch, verbose=0)],
            )
        ],
        1e-3,
    )  # fmt: skip


KINDS = {
    "ragged": ragged, "sparse": sparse, "quantized": quantized, "folded": folded, "masked": masked,
}  # fmt: skip


# --- comparing ------------------------------------------------------------------------------------


def numbers_of(way: Way, backend: str, seed: int, block: int) -> list[np.ndarray] | str:
    """Return losses, predictions and weights; of a case that is refused the type of the error."""
    config.set_backend(backend)
    keras.utils.set_random_seed(seed)
    kept, recurrences.BLOCK = recurrences.BLOCK, block
    try:
        model = way.make()
        found = [*way.fit(model), *way.predict(model), *(v.numpy() for v in model.variables)]
    except (ValueError, NotImplementedError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        recurrences.BLOCK = kept
    return [np.asarray(part, "float64") for part in found]


def differences(kind: str, seed: int) -> tuple[list[str], bool]:
    """Return texts about the ways of a case that differ, and whether it was run, not refused."""
    case = KINDS[kind](np.random.default_rng([seed, list(KINDS).index(kind)]), seed)
    results = {
        (backend, way.name): numbers_of(way, backend, seed, case.block)
        for way in case.ways for backend in ("static", "eager")
    }  # fmt: skip
    *_, base = results.values()
    texts = []
    for name, result in results.items():
        if isinstance(result, str) or isinstance(base, str):
            same = isinstance(result, str) and isinstance(base, str)
        else:
            same = len(result) == len(base) and all(
                a.shape == b.shape
                and np.allclose(a, b, case.tolerance, case.tolerance, equal_nan=True)
                for a, b in zip(result, base)
            )
        if not same:
            shown = result if isinstance(result, str) else "other numbers"
            texts.append(f"{kind} {seed} {name}: {shown}. {case.text}")
    return texts, not isinstance(base, str)
