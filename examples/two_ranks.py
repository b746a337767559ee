"""Data-parallel training on two processes
=======================================

Data-parallel training gives the same curve on one process and on two.

By itself it trains in one process; `python -m kerasish.launch -n 2 examples/two_ranks.py` trains on
two. With the same number of shards both print the same numbers, to the last digit.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

import kerasish as keras
from kerasish import layers

EPOCHS = 5


def main(epochs: int = EPOCHS) -> list[float]:
    keras.distribution.initialize()
    parallel = keras.distribution.DataParallel(shards=2)
    keras.distribution.set_distribution(parallel)
    keras.utils.set_random_seed(1)
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16).astype(np.float32), y.astype(np.int32)
    model = keras.Sequential(
        [keras.Input((64,)), layers.Dense(64, activation="relu"), layers.Dropout(0.2),
         layers.Dense(10, activation="softmax")]
    )  # fmt: skip
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    # The batch of 64 rows is cut in two; every process is given all the data.
    history = model.fit(x, y, batch_size=64, epochs=epochs, validation_split=0.2, verbose=0)
    if parallel.data_shard_id == 0:  # one process prints
        print(f"{parallel.num_processes} processes")
        for epoch, (loss, accuracy) in enumerate(
            zip(history.history["loss"], history.history["val_accuracy"], strict=True), 1
        ):
            print(f"epoch {epoch}: loss {loss:.8f}, validation accuracy {accuracy:.4f}")
    keras.distribution.set_distribution(None)
    return list(history.history["loss"])


if __name__ == "__main__":
    main()
