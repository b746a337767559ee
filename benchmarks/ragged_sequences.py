"""What sequences of different lengths cost: python -m benchmarks.ragged_sequences.

Printed are ratios of CPU times, medians of rounds that alternate:

- a recurrent classifier on rows of 8 steps against the same rows of 512 steps, given as lists, and
  padded to 512 steps with a mask;
- text of lengths as in reviews (a log-normal distribution) as lists, against the same padded to the
  longest, without a mask, where all time steps count, and with one, which leaves out blocks;
- how many programs compile for 59 different lengths.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import kerasish
from kerasish import layers, utils

WORDS = 2000


def model_of(recurrent: Any, mask_zero: bool = True) -> Any:
    """Return a compiled classifier of sequences of words."""
    model = kerasish.Sequential(
        [
            kerasish.Input((None,), dtype="int32"),
            layers.Embedding(WORDS, 32, mask_zero=mask_zero),
            recurrent,
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile("adam", "binary_crossentropy")
    return model


def alternating(first: Callable[[], object], second: Callable[[], object], rounds: int) -> str:
    """Return the medians of two functions' CPU times, called in turn, and their ratio."""
    times: list[list[float]] = [[], []]
    for number in range(rounds + 1):
        for function, list_ in ((first, times[0]), (second, times[1])):
            start = time.process_time()
            function()
            if number:
                list_.append(time.process_time() - start)
    a, b = (statistics.median(list_) for list_ in times)
    return f"{a:.3f} s against {b:.3f} s of CPU, ratio {a / b:.3f}"


def short_of_long(kind: str, rows: int = 256, rounds: int = 5) -> None:
    """Print what 8 real steps cost against 512."""
    rng = np.random.default_rng(0)
    long = rng.integers(1, WORDS, (rows, 512)).astype("int32")
    lists = [row[:8] for row in long]
    ragged = [row[: 8 - i % 2] for i, row in enumerate(lists)]
    padded = utils.pad_sequences(lists, 512, padding="post")
    y = rng.integers(0, 2, rows)
    made = {"LSTM": layers.LSTM, "GRU": layers.GRU}[kind]
    full = model_of(made(32))
    for name, x in (("lists", ragged), ("padded to 512 with a mask", padded)):
        own = model_of(made(32))

        def fit(model: Any, x: Any) -> Callable[[], object]:
            return lambda: model.fit(x, y, verbose=0)

        print(
            f"8 of 512 steps, {kind}, {name}: {alternating(fit(own, x), fit(full, long), rounds)}"
        )


def text(name: str, make: Callable[[], Any], rows: int = 600, rounds: int = 5) -> None:
    """Print what classification of text costs against padding to the longest."""
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.lognormal(4.0, 0.7, rows), 5, 400).astype(int)
    lists = [rng.integers(1, WORDS, n).astype("int32") for n in lengths]
    padded = utils.pad_sequences(lists, padding="post")
    y = rng.integers(0, 2, rows)
    share = lengths.mean() / lengths.max()
    for masked in (False, True):
        models = [model_of(make()), model_of(make(), masked)]
        result = alternating(
            lambda own=models[0]: own.fit(lists, y, verbose=0),
            lambda own=models[1]: own.fit(padded, y, verbose=0),
            rounds,
        )
        what = "padded with a mask" if masked else "padded"
        print(f"text, {name}, real share {share:.2f}, against {what}: {result}")


def programs() -> None:
    """Print how many programs compile for 59 lengths, in training, evaluation and prediction."""
    lengths = np.tile(np.arange(1, 60), 8)
    x = [np.ones(n, "int32") for n in lengths]
    model = model_of(layers.GRU(8))
    printed = io.StringIO()
    kerasish.config.explain_compiles(True)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            model.fit(x, lengths % 2, epochs=3, verbose=0)
            model.evaluate(x, lengths % 2, verbose=0)
            model.predict(x, verbose=0)
    finally:
        kerasish.config.explain_compiles(False)
    lines = printed.getvalue().splitlines()
    counts = {
        kind: sum(f"{kind} sequential" in line for line in lines)
        for kind in ("train", "test", "predict")
    }
    print(f"programs for 59 lengths: {counts}")


def main() -> None:
    """Print all of it, on one thread: several would wait for each other while other work runs."""
    kerasish.config.set_threads(1)
    programs()
    for kind in ("LSTM", "GRU"):
        short_of_long(kind)
    text("LSTM(32)", lambda: layers.LSTM(32))
    text("mean of the embeddings", layers.GlobalAveragePooling1D)


if __name__ == "__main__":
    main()
