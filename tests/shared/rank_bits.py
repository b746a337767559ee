"""Trains models with a number of shards: `rank_bits.py SHARDS BACKEND NAME ...` prints digests."""

from __future__ import annotations

import sys

import rank_models as models

import kerasish as keras
from kerasish.ranks import current_group

shards, backend, names = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
keras.distribution.initialize(timeout=300)
keras.distribution.set_distribution(keras.distribution.DataParallel(shards=shards))
keras.config.set_backend(backend)
group = current_group()
for name in names:
    digests = set(group.gather(models.train(name, rows=8 * shards + 7, batch_size=2 * shards)))
    if group.rank == 0:
        print(name, *digests, flush=True)
