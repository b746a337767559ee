"""Applications against Keras: layers and their order, weights, outputs on both engines."""

from __future__ import annotations

import application_cases as cases
import facts
import numpy as np
import pytest

from kerasish import applications, config, utils
from kerasish.initializers import Initializer, random, scaling

FACTS = facts.read("applications")
QUICK = ["MobileNetV2 alpha=0.35, no top, max", "MobileNetV3Small minimalistic"]
# One network of each other family. The small ones run as well: what layers are connected to,
# and their arguments, show only in the outputs.
SMALL = [
    "ConvNeXtTiny no top, avg", "DenseNet121 no top, max", "ResNet50 no top, avg",
    "ResNet50V2 no top", "VGG16 no top, avg",
]  # fmt: skip
BUILT = [
    "EfficientNetB0", "EfficientNetV2B0", "InceptionV3", "MobileNet alpha=0.5",
    "MobileNetV3Large no top", "Xception",
]  # fmt: skip
# The eager engine runs one network of each family: those above, and these. The others have the
# same layers in other numbers, and weights of up to half a gigabyte.
EAGER = {*BUILT, "EfficientNetV2S gray", "InceptionResNetV2", "NASNetMobile"}


@pytest.fixture
def undrawn(monkeypatch):
    """Let variables start at zero: drawing hundreds of millions of numbers takes long."""
    for module in (random, scaling):
        for cls in vars(module).values():
            if isinstance(cls, type) and issubclass(cls, Initializer) and "__call__" in vars(cls):
                monkeypatch.setattr(
                    cls, "__call__", lambda self, shape, dtype=None: np.zeros(shape, "float32")
                )


def built(case):
    fact = FACTS["cases"][case]
    utils.clear_session()
    model = cases.build(applications, case)
    found = cases.structure(model)
    for key in ("name", "parameters", "weights"):
        assert (key, found[key]) == (key, fact[key])
    assert found["layers"].splitlines() == fact["layers"].splitlines()
    return model, fact


def check(case, engines=("static", "eager")):
    model, fact = built(case)
    cases.set_weights(model)
    images = cases.images(model.input_shape)
    for engine in engines:
        config.set_backend(engine)
        outputs = cases.sample(model.predict(images, verbose=0))
        facts.expect_close(outputs, fact["outputs"], f"{case} on {engine}", 1e-4)


def test_every_network_has_facts():
    assert list(FACTS["cases"]) == list(cases.CASES)
    public = [name for name in dir(applications) if name[0].isupper()]
    assert sorted(public) == sorted(cases.NETWORKS)


@pytest.mark.parametrize("case", QUICK)
def test_network_is_that_of_keras(case, undrawn):
    check(case)


@pytest.mark.parametrize("case", SMALL)
def test_small_network_is_that_of_keras(case, undrawn):
    check(case, ("eager",))


@pytest.mark.parametrize("case", BUILT)
def test_layers_and_weights_are_those_of_keras(case, undrawn):
    built(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in cases.CASES if case not in QUICK])
def test_every_network_is_that_of_keras(case, undrawn):
    check(case, ("static", "eager") if case in EAGER else ("static",))


def test_outputs_depend_on_the_order_of_layers(undrawn):
    fact = FACTS["cases"][QUICK[0]]
    swapped = fact["layers"].splitlines()
    swapped[3], swapped[4] = swapped[4], swapped[3]
    model = cases.build(applications, QUICK[0])
    assert cases.structure(model)["layers"].splitlines() != swapped
