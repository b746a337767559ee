"""Runs a workload through Keras's API: kerasish, or Keras on any of its backends."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workloads import Workload, compile_model


class KerasRunner:
    """Drives `fit`, `train_on_batch` and `predict` of one Keras-like module."""

    def __init__(self, api: str, device: str) -> None:
        self.keras = importlib.import_module(api)
        self.device = device
        self.model: Any = None

    def build(self, workload: Workload, x: np.ndarray, y: np.ndarray) -> None:
        """Make the model and keep the arrays that `run` trains on."""
        self.keras.utils.set_random_seed(1)
        self._require_device()
        self.keras.config.set_dtype_policy(workload.policy)
        self.model = compile_model(self.keras, workload.build(self.keras))
        self.batch, self.x, self.y, self.resident = workload.batch, x, y, workload.resident
        rows = range(0, len(x), self.batch)
        self.parts = [(x[i : i + self.batch], y[i : i + self.batch]) for i in rows]
        if self.resident:
            to_device = self.keras.ops.convert_to_tensor
            self.parts = [(to_device(x), to_device(y)) for x, y in self.parts]
        self.clock = _make_clock(self.keras)

    def _require_device(self) -> None:
        """Refuse to run on the CPU what was asked for on a GPU: JAX would do so quietly."""
        if self.device != "gpu" or self.keras.__name__ == "kerasish":
            return
        if self.keras.backend.backend() == "jax":
            result = importlib.import_module("jax").devices()[0].platform
            if result not in ("gpu", "cuda"):
                raise RuntimeError(f"this JAX computes on {result}: its CUDA plugin is missing")
        if self.keras.backend.backend() == "tensorflow":
            tensorflow = importlib.import_module("tensorflow")
            if not tensorflow.config.list_physical_devices("GPU"):
                raise RuntimeError("this TensorFlow finds no GPU")

    def run(self, steps: int) -> dict[str, float]:
        """Train `steps` steps with `fit`; seconds of the epoch and of the whole call.

        With data on the device: with `train_on_batch`.
        """
        if self.resident:
            return self.run_batches(steps)
        count = steps * self.batch
        start = time.perf_counter()
        history = self.model.fit(
            self.x[:count],
            self.y[:count],
            batch_size=self.batch,
            epochs=1,
            verbose=0,
            callbacks=[self.clock],
        )
        whole = time.perf_counter() - start
        return {
            "seconds": self.clock.seconds,
            "call_seconds": whole,
            "loss": float(history.history["loss"][-1]),
        }

    def run_batches(self, steps: int) -> dict[str, float]:
        """Train `steps` steps with `train_on_batch`, batches sliced in order."""
        logs: Any = {}
        start = time.perf_counter()
        for step in range(steps):
            x, y = self.parts[step % len(self.parts)]
            logs = self.model.train_on_batch(x, y, return_dict=True)
        loss = float(logs["loss"])
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "call_seconds": seconds, "loss": loss}

    def single_calls(self) -> dict[str, Callable[[], Any]]:
        """Ways to ask for one row's output, by name; each returns a NumPy array."""
        row, model, to_numpy = self.x[:1], self.model, self.keras.ops.convert_to_numpy
        return {
            "predict": lambda: model.predict(row, verbose=0),
            "call": lambda: to_numpy(model(row)),
        }

    def count_parameters(self) -> int:
        """Number of trainable parameters."""
        return int(sum(np.prod(variable.shape) for variable in self.model.trainable_variables))


def _make_clock(keras: Any) -> Any:
    class EpochClock(keras.callbacks.Callback):  # type: ignore[name-defined, misc]
        """Times the last epoch; wants no batch events, so that no loop is slowed by it."""

        def __init__(self) -> None:
            super().__init__()
            self.seconds = 0.0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.started = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.seconds = time.perf_counter() - self.started

    return EpochClock()
