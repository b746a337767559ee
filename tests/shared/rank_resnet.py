"""Trains ResNet-20 for two steps: `rank_resnet.py SHARDS BACKEND` prints the digest of all of it.

The network is that of the benchmarks, on 32 x 32 x 3; a batch has one row per shard.
"""

from __future__ import annotations

import sys

import numpy as np
import rank_models as models

import kerasish as keras
from benchmarks.workloads import build_resnet20
from kerasish.ranks import current_group


def main(shards: int, backend: str) -> None:
    """Train, and print the number of weights and the digest."""
    keras.distribution.initialize(timeout=300)
    keras.distribution.set_distribution(keras.distribution.DataParallel(shards=shards))
    keras.config.set_backend(backend)
    keras.utils.set_random_seed(4)
    rng = np.random.default_rng(4)
    x = rng.standard_normal((2 * shards, 32, 32, 3), dtype=np.float32)
    y = rng.integers(0, 10, 2 * shards).astype("int32")
    model = build_resnet20(keras)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss)
    history = model.fit(x, y, batch_size=shards, epochs=1, verbose=0)
    group = current_group()
    digests = set(group.gather(models.digest(model, history)))
    if group.rank == 0:
        print(model.count_params(), *digests, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
