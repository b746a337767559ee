"""Trains models with a number of shards: `rank_bits.py SHARDS NAME ...` prints digests.

One job does all models on both engines: most of the time of a small job is that of its start.
"""

from __future__ import annotations

import sys

import numpy as np
import rank_models as models

import kerasish as keras
from benchmarks.workloads import build_resnet20
from kerasish.ranks import current_group


def train_resnet20(shards: int) -> str:
    """Return the digest of two steps of the benchmarks' network, on 32 x 32 x 3.

    A batch has one row per shard.
    """
    keras.utils.set_random_seed(4)
    rng = np.random.default_rng(4)
    x = rng.standard_normal((2 * shards, 32, 32, 3), dtype=np.float32)
    y = rng.integers(0, 10, 2 * shards).astype("int32")
    model = build_resnet20(keras)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss)
    return models.digest(model, model.fit(x, y, batch_size=shards, epochs=1, verbose=0))


def main(shards: int, names: list[str]) -> None:
    """Train each model; print engine, name and digest, which all ranks must have."""
    keras.distribution.initialize(timeout=300)
    keras.distribution.set_distribution(keras.distribution.DataParallel(shards=shards))
    group = current_group()
    for backend in ("eager", "static"):
        keras.config.set_backend(backend)
        for name in names:
            if name == "resnet20":
                digest = train_resnet20(shards)
            else:
                digest = models.train(name, rows=8 * shards + 7, batch_size=2 * shards)
            digests = set(group.gather(digest))
            if group.rank == 0:
                print(backend, name, *digests, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
