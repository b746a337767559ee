"""Scaling of images as Keras scales them, and the names of ImageNet's classes."""

from __future__ import annotations

import json

import application_cases as cases
import facts
import numpy as np
import pytest

from kerasish import applications, ops
from kerasish.applications import imagenet_utils

FACTS = facts.read("applications")["preprocessed"]
PIXELS = cases.images((None, 2, 2, 3))


@pytest.mark.parametrize("mode", ["tf", "torch", "caffe"])
def test_modes_are_those_of_keras(mode):
    given = PIXELS.copy()
    result = imagenet_utils.preprocess_input(given, mode=mode)
    facts.expect_close(result, FACTS["modes"][mode], mode, 1e-6)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(given, PIXELS)
    tensor = imagenet_utils.preprocess_input(ops.convert_to_tensor(PIXELS), mode=mode)
    facts.expect_close(ops.convert_to_numpy(tensor), FACTS["modes"][mode], mode, 1e-6)
    first = imagenet_utils.preprocess_input(
        np.moveaxis(PIXELS, -1, 1), data_format="channels_first", mode=mode
    )
    facts.expect_close(np.moveaxis(first, 1, -1), FACTS["modes"][mode], mode, 1e-6)
    one = imagenet_utils.preprocess_input(PIXELS[0], mode=mode)
    facts.expect_close(one, FACTS["modes"][mode][0], mode, 1e-6)


def test_each_family_scales_as_in_keras():
    for name, mode in FACTS["modules"].items():
        module = getattr(applications, name)
        result = module.preprocess_input(PIXELS.copy())
        expected = PIXELS if mode == "none" else FACTS["modes"][mode]
        facts.expect_close(result, expected, name, 1e-6)
        assert module.decode_predictions is imagenet_utils.decode_predictions
    assert set(FACTS["modules"].values()) == {"tf", "torch", "caffe", "none"}


def test_whole_numbers_become_floats():
    result = imagenet_utils.preprocess_input(np.full((1, 1, 3), 255, "uint8"), mode="tf")
    assert result.dtype == np.float32 and result.tolist() == [[[1.0, 1.0, 1.0]]]


def test_unknown_mode_and_format_are_refused():
    with pytest.raises(ValueError, match=r"mode is one of .*'caffe'.*got 'keras'"):
        imagenet_utils.preprocess_input(PIXELS, mode="keras")
    with pytest.raises(ValueError, match="data_format must be"):
        imagenet_utils.preprocess_input(PIXELS, data_format="last")


def test_decode_predictions_names_the_best(monkeypatch, tmp_path):
    names = {str(i): [f"n{i:08}", f"class {i}"] for i in range(1000)}
    path = tmp_path / "imagenet_class_index.json"
    path.write_text(json.dumps(names))
    asked = []

    def get_file(name, origin, **options):
        asked.append((name, origin, options["file_hash"]))
        return str(path)

    monkeypatch.setattr(imagenet_utils, "get_file", get_file)
    imagenet_utils._class_names.cache_clear()
    probabilities = np.zeros((2, 1000), "float32")
    probabilities[0, [3, 7]] = 0.25, 0.75
    probabilities[1, 999] = 1.0
    result = imagenet_utils.decode_predictions(probabilities, top=2)
    assert result[0] == [("n00000007", "class 7", 0.75), ("n00000003", "class 3", 0.25)]
    assert result[1][0] == ("n00000999", "class 999", 1.0)
    assert asked[0][0] == "imagenet_class_index.json" and asked[0][1].startswith("https://")
    imagenet_utils._class_names.cache_clear()
    with pytest.raises(ValueError, match=r"shape \(n, 1000\), got \(2, 10\)"):
        imagenet_utils.decode_predictions(np.zeros((2, 10)))
