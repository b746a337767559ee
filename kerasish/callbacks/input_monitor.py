"""InputMonitor: how much of the time a training waits for its data."""

from __future__ import annotations

from kerasish.callbacks.callback import Callback, Logs
from kerasish.callbacks.message import say
from kerasish.callbacks.progress import readable
from kerasish.callbacks.values import input_wait_of

_LEAST_SECONDS = 0.01


class InputMonitor(Callback):
    """Measures the share of each epoch in which training waits for the next batch.

    The share, 0 to 1, is added to the logs as "input_wait", and so to the `History` and to the log
    files of callbacks that follow this one. Arrays in memory take no time: the engine reads
    them itself. The time of validation does not count, nor does the first batch, which is read
    before the training begins.

    Args:
        threshold: epochs with a larger share are reported in a line, 0 <= threshold <= 1; those
            that wait for less than 10 ms are not.
        verbose: 0 reports nothing, 1 the epochs above the threshold, 2 all epochs.

    Raises:
        ValueError: an argument is out of its range.

    Example:
        >>> import numpy as np, kerasish as keras
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> data = keras.data.Dataset.from_tensor_slices((np.ones((8, 2)), np.ones(8))).batch(4)
        >>> history = model.fit(data, verbose=0, callbacks=[keras.callbacks.InputMonitor(1.0)])
        >>> 0 <= history.history["input_wait"][0] <= 1
        True
    """

    def __init__(self, threshold: float = 0.1, verbose: int = 1) -> None:
        super().__init__()
        if not 0 <= threshold <= 1:
            raise ValueError(f"InputMonitor: threshold is a share from 0 to 1, got {threshold!r}.")
        if verbose not in (0, 1, 2):
            raise ValueError(f"InputMonitor: verbose is 0, 1 or 2, got {verbose!r}.")
        self.threshold, self.verbose = threshold, verbose
        self._advised = False

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._advised = False

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        waited, total = input_wait_of(self.model)
        share = waited / total if total else 0.0
        if logs is not None:
            logs["input_wait"] = share
        too_much = share > self.threshold and waited > _LEAST_SECONDS
        if self.verbose == 2 or self.verbose == 1 and too_much:
            say(f"Epoch {epoch + 1}: training waited {readable(waited)} of {readable(total)} for "
                f"data ({share:.0%})." + self._advice(too_much))  # fmt: skip

    def _advice(self, too_much: bool) -> str:
        if self._advised or not too_much:
            return ""
        self._advised = True
        return (
            " Ways to make it less: prefetch() at the end, map() after batch(), map() with "
            "num_parallel_calls, cache(); workers=2 for a PyDataset."
        )
