"""The larger workloads: their models, and labels that fit."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from benchmarks.larger_workloads import ITEMS, LARGER
from benchmarks.report import GOALS
from benchmarks.workloads import make_data

PARAMETERS = {  # as PyTorch counts the trainable ones of the same model; of LSTMs it has two biases
    "dense-norm": 2_636_810,
    "mobilenet": 823_722,
    "gpt": 16_848_704,
    "resnet18": 11_181_642,
    "resnet50-96": 23_528_522,
    "unet": 1_925_700,
    "vit": 2_736_202,
    "lstm512": 14_452_496 - 2 * 4 * 512,
    "wide-deep": 18 * ITEMS + 24_932,
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if "50" in n else n for n in LARGER]
)
def test_a_model_predicts_what_its_labels_are(name):
    workload = LARGER[name]
    model = workload.build(kerasish)
    assert model.output_shape == (None, *workload.labels, workload.classes)
    assert sum(np.prod(v.shape) for v in model.trainable_variables) == PARAMETERS[name]
    x, y = make_data(workload, 2)
    assert x.shape == (2, *workload.shape) and y.shape == (2, *workload.labels)
    assert y.min() >= 0 and y.max() < workload.classes
    assert name in GOALS
