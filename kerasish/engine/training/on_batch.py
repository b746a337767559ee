"""One batch at a time: `train_on_batch` and similar, and the shortest way to a small result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kerasish import tree
from kerasish.changes import Changes
from kerasish.engine.training import evaluation, step
from kerasish.engine.training.given import read_given
from kerasish.engine.training.loop import check_training_data
from kerasish.tensor import Tensor
from kerasish.tracebacks import hides_frames
from kerasish.typing import Structure

_FLOAT32 = np.dtype("float32")
_NONE_TRIED = (None, None)


class OnBatchMixin:
    """The part of a trainer that takes one batch; a base class of `Trainer`."""

    @hides_frames
    def train_on_batch(
        self: Any,
        x: Structure,
        y: Structure = None,
        sample_weight: Structure = None,
        class_weight: Mapping[Any, Any] | None = None,
        return_dict: bool = False,
    ) -> Structure:
        """Do one training step; return loss and metrics of this batch only."""
        self.training_program.require_compiled("train_on_batch")
        return self._on_batch("train", x, y, sample_weight, class_weight, return_dict)

    @hides_frames
    def test_on_batch(
        self: Any,
        x: Structure,
        y: Structure = None,
        sample_weight: Structure = None,
        return_dict: bool = False,
    ) -> Structure:
        """Do one evaluation step; return loss and metrics of this batch only."""
        self.training_program.require_compiled("test_on_batch")
        return self._on_batch("test", x, y, sample_weight, None, return_dict)

    def _on_batch(
        self: Any,
        kind: str,
        x: Structure,
        y: Structure,
        sample_weight: Structure,
        class_weight: Mapping[Any, Any] | None,
        as_dict: bool,
    ) -> Any:
        program, weights = self.training_program, None
        x = self.with_structures(x)
        new = not program.is_prepared(kind)
        plain = sample_weight is None and class_weight is None and self.host_stage() is None
        if new or not plain or not evaluation.lies_on_gpu(x, y):
            given = read_given(self, x, y, sample_weight)
            data = self.on_host(evaluation.one_batch(*given, class_weight))
            x, y, weights = data.peek()
            program.prepare(kind, x, y, weights)
            if new and kind == "train":
                program.when_matched(lambda: check_training_data(program, data, 0))
            else:
                program.check_batch(x, y, weights)
        with program.exclusive.take(f"{kind}_on_batch", long=False):
            self.reset_metrics()
            logs = program.step(kind)(x, y, weights)
            results = program.results() if logs is None else step.numbers(logs)
        return results if as_dict else evaluation.listed(results, self.metrics_names)

    @hides_frames
    def predict_on_batch(self: Any, x: Structure) -> Structure:
        """Return the model's results for one batch, as NumPy arrays."""
        return self._predict_batch(x)

    def _predict_batch(self: Any, x: Structure) -> Structure:
        program, tried = self.training_program, None
        if type(x) is np.ndarray:
            call, tried = program.ready_calls.get(x.shape, _NONE_TRIED)
            array = None if call is None else call(x)
            if array is not None:
                return array
        mark, given = Changes.mark, x
        # Of other floats and other byte orders the data adapter makes arrays that a step takes.
        ready = type(x) is np.ndarray and (
            x.dtype is _FLOAT32 or (x.dtype.kind in "iub" and x.dtype.isnative)
        )
        if not ready:
            x = self.with_structures(x)
        if not program.is_prepared("predict"):
            x = self.on_host(evaluation.one_batch(*read_given(self, x))).peek()[0]
            program.prepare("predict", x)
        elif not ready or self.host_stage() is not None:
            x = self.on_host(evaluation.one_batch(*read_given(self, x))).peek()[0]
        compiled = program.step("predict")
        if type(x) is np.ndarray:
            array = compiled.call_on_array(x)
            if array is not None:
                if tried is not mark and x is given:
                    program.keep_ready_call(compiled, x, mark)
                return array
        result = compiled(x)
        if type(result) is Tensor:
            return evaluation.own_array(result)
        return tree.map_structure(evaluation.own_array, result)
