"""A training step with LoRA compared with the full step: python -m benchmarks.lora.

The model has 6 blocks of a transformer of width 384. One copy trains all of its weights. In the
other two, LoRA of rank 8 is on, and all but it and the biases of its layers is frozen: on the
projections of queries and values, as in the experiments of Hu et al. (2021,
https://arxiv.org/abs/2106.09685), or on every Dense and EinsumDense layer. The steps of the three
alternate in one process on the static engine. Prints the median and the best time of each, and
their ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import kerasish as keras
from benchmarks.machine import describe_machine

WIDTH, BLOCKS, HEADS, CLASSES, RANK = 384, 6, 6, 10, 8
# Model -> names of the layers with LoRA; None: every Dense and EinsumDense layer.
ADAPTED = {"full": (), "query, value": ("query", "value"), "every layer": None}


def model_of(
    adapted: str, length: int, width: int = WIDTH, blocks: int = BLOCKS, rank: int = RANK
) -> Any:
    """Return the compiled model.

    Args:
        adapted: which layers have LoRA, a key of `ADAPTED`. All but it and the biases of these
            layers is frozen, unless no layer has it.
        length: positions of a sequence.
        width: size of each position's vector, a multiple of the number of heads.
        blocks: number of blocks.
        rank: rank of LoRA.
    """
    keras.utils.set_random_seed(0)
    layers = keras.layers
    x = inputs = keras.Input((length, width))
    for _ in range(blocks):
        attention = layers.MultiHeadAttention(HEADS, width // HEADS)
        x = layers.LayerNormalization()(layers.Add()([x, attention(x, x)]))
        inner = layers.Dense(4 * width, activation="gelu")(x)
        x = layers.LayerNormalization()(layers.Add()([x, layers.Dense(width)(inner)]))
    outputs = layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(x))
    model = keras.Model(inputs, outputs)
    names = ADAPTED[adapted]
    if names != ():
        every = model.flatten_layers(include_self=False)
        chosen = [
            part
            for part in every
            if hasattr(part, "enable_lora") and (names is None or part.name in names)
        ]
        for part in every:
            part.trainable = any(p in chosen for p in part.flatten_layers())
            if part in chosen:
                part.enable_lora(rank)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def measure(models: dict[str, Any], batch: int, rounds: int) -> dict[str, list[float]]:
    """Return name -> seconds of each step; two steps of each warm up."""
    rng = np.random.default_rng(0)
    (_, length, width) = models["full"].input_shape
    x = rng.normal(size=(batch, length, width)).astype("float32")
    y = rng.integers(0, CLASSES, batch)
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(rounds + 2):
        for name, model in models.items():
            start = time.perf_counter()
            model.train_on_batch(x, y)
            times[name].append(time.perf_counter() - start)
    return {name: spent[2:] for name, spent in times.items()}


def ratios(times: dict[str, list[float]], name: str) -> tuple[float, float]:
    """Return what a step takes of the full step's time: of medians, of best times."""
    first, second = (f(times[name]) / f(times["full"]) for f in (statistics.median, min))
    return first, second


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser("python -m benchmarks.lora", description=__doc__)
    parser.add_argument("--rounds", type=int, default=21, help="steps that count")
    parser.add_argument("--batch", type=int, default=8, help="sequences in a batch")
    parser.add_argument("--length", type=int, default=128, help="positions of a sequence")
    options = parser.parse_args(arguments)
    keras.config.set_backend("static")
    print(describe_machine())
    models = {name: model_of(name, options.length) for name in ADAPTED}
    times = measure(models, options.batch, options.rounds)
    for name, model in models.items():
        count = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
        spent = times[name]
        median, best = ratios(times, name)
        print(
            f"{name:12} {count:10,} trained numbers, median {statistics.median(spent) * 1e3:8.2f} "
            f"ms per step ({median:.2f} of the full step), best {min(spent) * 1e3:8.2f} ms "
            f"({best:.2f})"
        )


if __name__ == "__main__":
    main()
