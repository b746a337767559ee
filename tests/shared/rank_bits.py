"""Trains models on 16, 8, 4, 2 and 1 ranks of one job: `mpiexec -n 16 python rank_bits.py`.

Rank 0 prints a line for each training: ranks, shards, engine, model, and its digests, which are one
where all ranks have equal bits. One start for all: most of the time of a small job is its start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import rank_models as models
from rank_parts import in_parts, join

import kerasish as keras
from kerasish.distribution import DataParallel
from kerasish.ranks import current_group, set_sharding

L = keras.layers
EVERY = sorted(models.MODELS.keys() - {"synchronized"})  # which needs one shard per rank
ENGINES = ("eager", "static")


def mixed() -> keras.Model:
    """Residual blocks as in ResNet-20; on their pixels an LSTM and attention, with dropout."""

    def convolve(x: Any, filters: int, size: int, stride: int) -> Any:
        x = L.Conv2D(filters, size, strides=stride, padding="same", use_bias=False)(x)
        return L.BatchNormalization()(x)

    inputs = keras.Input((8, 8, 3))
    x = L.ReLU()(convolve(inputs, 8, 3, 1))
    for filters, stride in ((8, 1), (16, 2)):
        y = convolve(L.ReLU()(convolve(x, filters, 3, stride)), filters, 3, 1)
        x = L.ReLU()(L.Add()([convolve(x, filters, 1, 2) if stride == 2 else x, y]))
    steps = L.Reshape((16, 16))(x)
    seen = L.LayerNormalization()(steps + L.MultiHeadAttention(2, 4, dropout=0.1)(steps, steps))
    parts = [L.GlobalAveragePooling2D()(x), L.LSTM(8)(steps), L.GlobalAveragePooling1D()(seen)]
    return keras.Model(inputs, L.Dense(10)(L.Dropout(0.3)(L.Concatenate()(parts))))


def train_mixed(shards: int) -> str:
    """Return the digest of a training whose batches have one row per shard, the last one fewer."""
    keras.utils.set_random_seed(4)
    rng = np.random.default_rng(4)
    rows = 3 * shards + 7
    x = rng.standard_normal((rows, 8, 8, 3), dtype=np.float32)
    y = rng.integers(0, 10, rows).astype("int32")
    model = mixed()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=["accuracy"])
    fit = {"batch_size": shards, "epochs": 2, "verbose": 0, "validation_split": 0.25}
    return models.digest(model, model.fit(x, y, **fit))


def train(shards: int, names: Sequence[str]) -> Iterator[str]:
    """Train each model on each engine with the ranks of the current group."""
    group = current_group()
    set_sharding(DataParallel(shards=shards).sharding())
    for backend in ENGINES:
        keras.config.set_backend(backend)
        for name in names:
            keras.utils.clear_session()
            if name == "mixed":
                digest = train_mixed(shards)
            else:
                # Sums of many terms: a product in pieces may add them in another order.
                own = 600 if name == "wide" else 2
                digest = models.train(name, rows=(4 * own) * shards + 7, batch_size=own * shards)
            digests = sorted(set(group.gather(digest)))
            yield " ".join([str(group.size), str(shards), backend, name, *digests])


def main() -> None:
    world = join(timeout=300)
    lines = list(train(16, ["mixed"]))
    with in_parts(8, 4, 2, 1) as part:
        if part is not None:
            lines += train(16, ["mixed"])
    with in_parts(4, 2, 1) as part:
        if part is not None:
            lines += train(4, EVERY)
    every = {line for lines in world.gather(lines) for line in lines}
    if world.rank == 0:
        print(*sorted(every), sep="\n", flush=True)


if __name__ == "__main__":
    main()
