"""Trains models on 16, 8, 4, 2 and 1 ranks of one job: `mpiexec -n 16 python rank_bits.py`.

Rank 0 prints a line for each training: ranks, shards, engine, model, and its digests, which are one
where all ranks have equal bits. One start serves all: most of the time of a small job is its start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import rank_models as models
from rank_parts import in_parts, join

import kerasish as keras
from benchmarks.workloads import build_resnet20
from kerasish.distribution import DataParallel
from kerasish.ranks import current_group, set_sharding

SMALL = ("mlp", "cnn", "lstm", "transformer")
EVERY = sorted(models.MODELS.keys() - {"synchronized"})  # which needs one shard per rank
ENGINES = ("eager", "static")


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


def train(shards: int, names: Sequence[str]) -> Iterator[str]:
    """Train each model on each engine with the ranks of the current group."""
    group = current_group()
    set_sharding(DataParallel(shards=shards).sharding())
    for backend in ENGINES:
        keras.config.set_backend(backend)
        for name in names:
            keras.utils.clear_session()
            if name == "resnet20":
                digest = train_resnet20(shards)
            else:
                digest = models.train(name, rows=8 * shards + 7, batch_size=2 * shards)
            digests = sorted(set(group.gather(digest)))
            yield " ".join([str(group.size), str(shards), backend, name, *digests])


def main() -> None:
    world = join(timeout=300)
    lines = list(train(16, ("resnet20", *SMALL)))
    with in_parts(8, 4, 2, 1) as part:
        if part is not None:
            lines += train(16, ("resnet20", *SMALL) if part.size == 1 else ("resnet20",))
    with in_parts(4, 2, 1) as part:
        if part is not None:
            lines += train(4, EVERY)
    every = {line for lines in world.gather(lines) for line in lines}
    if world.rank == 0:
        print(*sorted(every), sep="\n", flush=True)


if __name__ == "__main__":
    main()
