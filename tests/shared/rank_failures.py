"""A training in which rank 1 fails after its second epoch: `python rank_failures.py KIND TIMEOUT`.

Prints the time of the failure, as `time.time()` gives it, on stdout.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import rank_models as models

import kerasish as keras
from kerasish.ranks import current_group

kind = sys.argv[1]
keras.distribution.initialize(timeout=float(sys.argv[2]) if kind in ("stop", "stall") else 60.0)
keras.distribution.set_distribution(
    keras.distribution.DataParallel(shard_optimizer=kind.startswith("save"))
)
rank = current_group().rank


def fail() -> None:
    print("failed at", time.time(), flush=True)
    if kind == "raise":
        raise ValueError("a bad\nrow")
    if kind == "exit":
        sys.exit(3)
    if kind == "SystemExit":
        raise SystemExit(4)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "stall":
        time.sleep(1000)
    if kind.startswith("save"):
        model.save("never_written.keras")


class Fails(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if (
            rank == 1
            and epoch == 1
            and kind not in ("steps", "batches", "graph", "saves late", "predict", "step")
        ):
            fail()


class Alone(keras.callbacks.Callback):
    everywhere = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch == 1 and kind in ("predict", "step"):
            print("failed at", time.time(), flush=True)
            if kind == "predict":
                model.predict(x[:1], verbose=0)
            else:
                model.training_program.step("train")(x[:16], y[:16], None)


x, y = models.data(64)
if kind == "batches" and rank == 1:
    x, y = x[:32], y[:32]
model = models.compiled("smooth")
if kind == "graph" and rank == 1:
    model = models.compiled("normalized")
epochs = 3 if kind == "steps" and rank == 1 else 4
model.fit(x, y, batch_size=16, epochs=epochs, verbose=0, callbacks=[Fails(), Alone()])
if kind == "saves late" and rank == 1:
    fail()
if kind == "steps" and rank == 1:
    print("failed at", time.time(), flush=True)
