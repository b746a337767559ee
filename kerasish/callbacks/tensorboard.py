"""TensorBoard: writes event files, which the TensorBoard program shows during training."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasish.callbacks import event_files, timeline
from kerasish.callbacks.callback import Callback, Logs
from kerasish.callbacks.layer_graph import list_nodes
from kerasish.callbacks.state_checks import check_values, dict_of, is_count
from kerasish.callbacks.step_timer import StepTimer
from kerasish.callbacks.values import plain, rates

_RUNS = ("train", "validation")


class TensorBoard(Callback):
    """Writes losses, metrics, weights and the model's graph for `tensorboard --logdir=log_dir`.

    Training is written to `log_dir/train`, validation and `evaluate` to `log_dir/validation`:
    curves `epoch_<name>` over epochs, `batch_<name>` over batches,
    `evaluation_<name>_vs_iterations` over the optimizer's updates. A resumed training drops the
    events of batches that run again. Needs the package tensorboardX
    (`pip install kerasish[tensorboard]`).

    Args:
        log_dir: the folder; use one per run, so that runs can be compared.
        histogram_freq: epochs between histograms of the weights; 0: none.
        write_graph: whether to write the model's layers as a graph.
        write_images: whether to write the weights as images, with the histograms.
        write_steps_per_second: whether to write the speed.
        update_freq: "epoch", "batch", or a number of batches, >= 1. Writing batches costs time,
            because the engine cannot run many steps per call then.
        profile_batch: the number of the batch to profile, counted from 1, or (first, last), or
            "first,last"; 0: none. The parts of these steps are timed as `callbacks.Profiler` does,
            and written to `log_dir/plugins/profile` for TensorBoard's trace viewer.
        embeddings_freq: epochs between copies of embedding tables for the projector; 0: none.
        embeddings_metadata: a file with one label per row, or {layer name: file}; None: none.

    Attributes:
        hparams: settings of this run, {name: number, string or bool}. Fill it before `fit`; the
            page HPARAMS of TensorBoard compares runs by them. Not in Keras.

    Raises:
        ImportError: tensorboardX is missing (when training starts).

    Example:
        >>> board = TensorBoard("logs/run1", histogram_freq=1)
        >>> board.hparams["units"] = 64
    """

    everywhere = False

    def __init__(
        self,
        log_dir: str | os.PathLike[str] = "logs",
        histogram_freq: int = 0,
        write_graph: bool = True,
        write_images: bool = False,
        write_steps_per_second: bool = False,
        update_freq: int | str = "epoch",
        profile_batch: int | Sequence[int] | str | None = 0,
        embeddings_freq: int = 0,
        embeddings_metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.log_dir = os.fspath(log_dir)
        self.histogram_freq, self.write_graph = histogram_freq, write_graph
        self.write_images, self.write_steps_per_second = write_images, write_steps_per_second
        self.update_freq = 1 if update_freq == "batch" else update_freq
        if self.update_freq != "epoch" and not (
            isinstance(self.update_freq, int) and self.update_freq >= 1
        ):
            raise ValueError(
                f"TensorBoard: update_freq is 'epoch', 'batch' or a number of batches >= 1, "
                f"got {update_freq!r}"
            )
        batches = _batches(profile_batch)
        self._timer = None if batches is None else StepTimer(batches)
        self.profile_batch = profile_batch
        self.embeddings_freq, self.embeddings_metadata = embeddings_freq, embeddings_metadata
        self.hparams: dict[str, Any] = {}
        self._writers: dict[str, Any] = {}
        self._batches = 0
        self._start = (0.0, 0)
        self._training = False

    _state = ("_batches",)
    _checks = {"_batches": is_count, "files": dict_of(is_count)}

    def get_state(self) -> dict[str, Any]:
        """Return the number of batches and the current size of each event file."""
        # A flush leaves what is in the writer's queue; a closed file holds everything.
        self._release()
        return {**super().get_state(), "files": event_files.event_sizes(self.log_dir, _RUNS)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Truncate the files to their sizes in the state, since later batches run again."""
        check_values("the state of TensorBoard", state, self._checks)
        self._batches = state["_batches"]
        self._release()
        shorter = event_files.cut_back(self.log_dir, _RUNS, state["files"])
        if shorter:
            warnings.warn(
                f"TensorBoard: {', '.join(shorter)} in {self.log_dir!r} held more when the state "
                "was taken; the curves have a gap",
                stacklevel=2,
            )

    def _idle(self) -> tuple[str, ...]:
        return ("on_train_batch_end",) if self.update_freq == "epoch" else ()

    def _writer(self, run: str) -> Any:
        if run not in self._writers:
            self._writers[run] = event_files.open_writer(str(Path(self.log_dir, run)))
        return self._writers[run]

    def _iterations(self) -> int:
        return int(np.asarray(self.model.optimizer.iterations))

    # --- training ---------------------------------------------------------------------------------

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._release()
        if self._timer is not None:
            self._timer.begin()
        self._training, self._batches = True, 0
        writer = self._writer("train")
        if self.write_graph:
            event_files.add_graph(writer, list_nodes(self.model))
            event_files.add_config(writer, self.model)
        self._check_metadata()

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._batches += 1
        if (self._batches - 1) % int(self.update_freq):
            return
        writer = self._writer("train")
        for name, value in (logs or {}).items():
            writer.add_scalar(f"batch_{name}", plain(value), self._batches - 1)
        if self.write_steps_per_second:
            before, self._batch_start = self._batch_start, (time.perf_counter(), self._batches)
            speed = (self._batches - before[1]) / max(time.perf_counter() - before[0], 1e-9)
            writer.add_scalar("batch_steps_per_second", speed, self._batches - 1)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._start = (time.perf_counter(), self._iterations())
        self._batch_start = (time.perf_counter(), self._batches)
        if self._timer is not None:
            self._timer.attach(self.model)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        logs = dict(logs or {})
        if self._timer is not None and self._timer.over:
            self._timer.detach(self.model)
        writer = self._writer("train")
        if self.model.optimizer is not None:
            logs = {**rates(self.model.optimizer), **logs}
        for name, value in logs.items():
            run = "validation" if name.startswith("val_") else "train"
            number = plain(value)
            if np.ndim(number) == 0:
                self._writer(run).add_scalar(f"epoch_{name.removeprefix('val_')}", number, epoch)
        if self.write_steps_per_second:
            seconds = max(time.perf_counter() - self._start[0], 1e-9)
            steps = self._iterations() - self._start[1]
            writer.add_scalar("epoch_steps_per_second", steps / seconds, epoch)
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            self._write_weights(epoch)
        if self.embeddings_freq and epoch % self.embeddings_freq == 0:
            self._write_embeddings(epoch)

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self.hparams:
            numbers = {f"final_{k}": plain(v) for k, v in (logs or {}).items()}
            numbers = {k: float(v) for k, v in numbers.items() if np.ndim(v) == 0}
            event_files.add_settings(self._writer("train"), self.hparams, numbers)
        self._training = False
        if self._timer is not None:
            self._timer.detach(self.model)
            lines = timeline.lines_of(self.model)
            timed = [[timeline.placed(t, lines) for t in step] for step in self._timer.timings]
            if timed:
                timeline.write_profile(self.log_dir, timed)
        self._release()

    # --- evaluation -------------------------------------------------------------------------------

    def on_test_end(self, logs: Logs | None = None) -> None:
        writer = self._writer("validation")
        step = self._iterations()
        for name, value in (logs or {}).items():
            if np.ndim(plain(value)) == 0:
                writer.add_scalar(f"evaluation_{name}_vs_iterations", plain(value), step)
        if not self._training:
            self._release()

    # --- weights ----------------------------------------------------------------------------------

    def _write_weights(self, epoch: int) -> None:
        writer = self._writer("train")
        for weight in self.model.weights:
            values = np.asarray(weight.numpy(), "float32")
            finite = values[np.isfinite(values)]
            if finite.size:
                writer.add_histogram(f"{weight.path}/histogram", finite, epoch)
            if self.write_images and finite.size == values.size:
                event_files.add_weight_picture(writer, f"{weight.path}/image", values, epoch)

    def _embeddings(self) -> dict[str, Any]:
        """Return layer name -> table of the embedding layers."""
        layers = self.model.flatten_layers()
        return {la.name: la.embeddings for la in layers if hasattr(la, "embeddings")}

    def _metadata_of(self, name: str) -> str | None:
        given = self.embeddings_metadata
        return given.get(name) if isinstance(given, Mapping) else given

    def _check_metadata(self) -> None:
        given = self.embeddings_metadata
        if isinstance(given, Mapping):
            known = set(self._embeddings())
            strange = sorted(set(given) - known)
            if strange:
                raise ValueError(
                    f"TensorBoard: embeddings_metadata names {strange}, but the embedding layers "
                    f"are {sorted(known)}"
                )

    def _write_embeddings(self, epoch: int) -> None:
        for name, table in self._embeddings().items():
            path = self._metadata_of(name)
            labels = Path(path).read_text("utf-8").splitlines() if path else None
            values = np.asarray(table.numpy(), "float32")
            if labels is not None and len(labels) != len(values):
                raise ValueError(
                    f"TensorBoard: {path!r} has {len(labels)} lines for the {len(values)} rows of "
                    f"the embedding layer {name!r}"
                )
            self._writer("train").add_embedding(values, labels, global_step=epoch, tag=name)

    def _release(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_writers": {}}


def _batches(given: int | Sequence[int] | str | None) -> tuple[int, int] | None:
    """Return the first and the last batch to profile, counted from 0; None: none."""
    if isinstance(given, str):
        parts: Sequence[Any] = given.split(",")
    else:
        parts = given if isinstance(given, Sequence) else [given or 0] * 2
    numbers = [int(p) for p in parts if str(p).strip().isdigit()]
    if len(parts) != 2 or len(numbers) != 2 or numbers[0] > numbers[1]:
        raise ValueError(
            "TensorBoard: profile_batch is a number of a batch, or (first, last) with 1 <= first "
            f"<= last, got {given!r}."
        )
    if numbers[0] == 0:
        if numbers[1]:
            raise ValueError(f"TensorBoard: profile_batch counts from 1, got {given!r}.")
        return None
    return numbers[0] - 1, numbers[1] - 1
