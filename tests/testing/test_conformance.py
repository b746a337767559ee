"""The conformance suite: our backends pass, and each kind of fault is found."""

from __future__ import annotations

import numpy as np
import pytest

from kerasish import backends, ops
from kerasish.backends.eager import Eager
from kerasish.tensor import prepare
from kerasish.testing import check_backend


@pytest.mark.parametrize("name", ["eager", pytest.param("static", marks=pytest.mark.slow)])
def test_our_backends_conform(name):
    passed = check_backend(name)
    assert "trains a line" in passed
    assert {f"apply {op} 0" for op in ("add", "matmul", "exp")} <= set(passed)
    assert len(passed) > 500


class Partial(Eager):
    """The eager engine under another name."""

    def __init__(self, **options):
        super().__init__(**options)
        self.name = "faulty"


class WrongSine(Partial):
    def __init__(self):
        super().__init__(overrides={"sin": np.cos})


class WrongDtype(Partial):
    def __init__(self):
        super().__init__(overrides={"argmax": lambda x, **attrs: np.float32(0)})


class Hasty(Partial):
    """Assigns at once, so that an error leaves half a step."""

    def compile(self, function, **options):
        return function


class Forgetful(Partial):
    """Runs the first call only."""

    def compile(self, function, **options):
        created = []
        inner = super().compile(function)

        def step(*args):
            if not created:
                created.append(inner(*args))
            return created[0]

        return step


class Sharing(Partial):
    """Hands out views of the caller's arrays."""

    def apply(self, op, args, attrs):
        tensors, attrs = prepare(op, args, attrs)
        for t in tensors:
            t.borrowed = False
        return super().apply(op, tensors, attrs)


class Nameless(Eager):
    """Goes by a name that is not the one it was registered under."""


@pytest.mark.parametrize(
    ("factory", "fails"),
    [
        (WrongSine, ["apply sin 0"]),
        (WrongDtype, ["apply argmax 0"]),
        (Hasty, ["is undone by an error"]),
        (Forgetful, ["takes new shapes", "draws the same numbers", "trains a line"]),
        (Sharing, ["copies what the caller may change"]),
        (Nameless, ["is a backend"]),
    ],
)
def test_faults_are_found(factory, fails):
    backends.register("faulty", factory)
    try:
        with pytest.raises(AssertionError, match="Backend 'faulty' fails") as caught:
            check_backend("faulty")
    finally:
        backends.unregister("faulty")
    for title in fails:
        assert f"- {title}: " in str(caught.value)


def test_an_unknown_backend_is_named():
    with pytest.raises(ValueError, match="stati.*static"):
        check_backend("stati")


def test_a_backend_is_forgotten():
    backends.register("faulty", Nameless)
    assert "faulty" in backends.names()
    backends.unregister("faulty")
    assert "faulty" not in backends.names()
    with pytest.raises(ValueError, match="faulty"):
        backends.get("faulty")
    with pytest.raises(ValueError, match="faulty"):
        backends.unregister("faulty")


def test_a_backend_chosen_by_config_runs_models():
    import kerasish as keras

    calls = []

    class Counting(Partial):
        def compile(self, function, **options):
            calls.append(options["name"])
            return super().compile(function, **options)

    backends.register("counting", Counting)
    before = keras.config.backend()
    keras.config.set_backend("counting")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 2)), ops.ones((4, 1)).numpy(), verbose=0)
    keras.config.set_backend(before)
    backends.unregister("counting")
    assert calls == [f"train {model.name}"]
