"""Large products in shares of one thread each: every share is at its place, on any thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import layers, ops
from kerasish.backends.onednn import native
from kerasish.backends.static import engine as static_engine
from kerasish.backends.static.codegen import team
from kerasish.backends.static.engine import COMPILED_PLANS, Static
from kerasish.backends.static.lowering import library, shared_products
from kerasish.backends.static.lowering.program_threads import Threads
from kerasish.backends.static.lowering.shared_products import SharedProductUnit

pytestmark = pytest.mark.skipif(
    bool(native.available() or not team.can_help()),
    reason="helpers take shares of oneDNN's products, on Linux and x86-64",
)
ENGINE = Static()


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def axis_1_first(x: Any) -> Any:
    return ops.transpose(x, (1, 0, 2))


# what is computed, the shapes of its arguments, the sizes of the largest share's result
CASES: list[tuple[Callable[..., Any], list[tuple[int, ...]], tuple[int, ...]]] = [
    (lambda a, b: a @ b, [(37, 20), (20, 70)], (37, 38)),
    (lambda a, b: a @ b, [(71, 20), (20, 33)], (39, 33)),
    (lambda a, b, c: a @ b + c, [(37, 20), (20, 70), (70,)], (37, 38)),
    (lambda a, b, c: a @ b + c, [(71, 20), (20, 33), (33,)], (39, 33)),
    (lambda a, b: ops.transpose(a) @ b, [(20, 71), (20, 33)], (39, 33)),
    (lambda a, b: a @ ops.transpose(b), [(37, 20), (70, 20)], (37, 38)),
    (lambda a, b, c: a @ b + ops.tanh(c), [(37, 20), (20, 70), (37, 70)], (37, 38)),
    (lambda a, b: a @ b, [(9, 40, 400), (9, 400, 50)], (5, 40, 50)),
    (lambda a, b: a @ b, [(3, 40, 400), (3, 400, 50)], (3, 40, 32)),
    (lambda a, b: a @ b, [(9, 40, 20), (20, 50)], (184, 50)),
    (lambda a, b: axis_1_first(a) @ b, [(40, 9, 400), (9, 400, 50)], (5, 40, 50)),
    (lambda a, b: axis_1_first(a @ b), [(9, 40, 400), (9, 400, 50)], (5, 40, 50)),
]


@pytest.fixture
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all products have two shares that helpers may take."""
    monkeypatch.setattr(native, "processors", lambda: 2)
    monkeypatch.setattr(shared_products, "GRAIN", 1.0)
    monkeypatch.setattr(library, "SMALL_FLOPS", 0.0)
    threads = Threads(None, 1, 1, team=2)
    monkeypatch.setattr(static_engine, "program_threads", lambda graph, training: threads)
    COMPILED_PLANS.clear()


def shared_units(step: Any) -> list[SharedProductUnit]:
    return [u for e in step.executables() for u in e.units if isinstance(u, SharedProductUnit)]


@pytest.mark.usefixtures("small_shares")
@pytest.mark.parametrize("case", CASES)
def test_shares_of_products(case: Any) -> None:
    make, shapes, largest = case
    arrays = [numbers(*shape, seed=n) for n, shape in enumerate(shapes)]
    expected = ops.convert_to_numpy(make(*map(ops.convert_to_tensor, arrays)))
    with kerasish.config.using_threads(2):
        step = ENGINE.compile(make)
        for _ in range(3):
            np.testing.assert_allclose(step(*arrays).numpy(), expected, 0, 1e-4)
        (unit,) = shared_units(step)
    sizes = [share.primitive.arguments["out"].dims for share in unit.shares]
    assert len(sizes) == 2 and max(sizes) == largest


@pytest.mark.usefixtures("small_shares")
def test_bits_do_not_depend_on_helpers() -> None:
    found = []
    own = team._team()
    with kerasish.config.using_threads(2):
        for alone in (False, True):
            kerasish.utils.set_random_seed(3)
            model = kerasish.Sequential(
                [kerasish.Input((60,)), layers.Dense(90, "tanh"), layers.Dense(90)]
            )
            model.compile("adam", "mse")
            model.fit(numbers(64, 60), numbers(64, 90, seed=1), 16, verbose=0)
            if alone:
                own.stop()  # the caller runs all shares
            model.fit(numbers(64, 60, seed=2), numbers(64, 90, seed=3), 16, 3, verbose=0)
            assert shared_units(model.training_program.step("train"))
            found.append([w.tobytes() for w in model.get_weights()])
    assert found[0] == found[1]


def test_which_steps_take_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "processors", lambda: 2)
    COMPILED_PLANS.clear()
    dense = [kerasish.Input((256,)), layers.Dense(512)]
    images = [kerasish.Input((16, 16, 1)), layers.Conv2D(8, 3), layers.Flatten(), layers.Dense(512)]
    found = []
    with kerasish.config.using_threads(2):
        for parts in (dense, images):
            model = kerasish.Sequential(parts)
            model.compile("sgd", "mse")
            shape = model.inputs[0].shape[1:]
            model.train_on_batch(numbers(64, *shape), numbers(64, 512))
            (executable,) = model.training_program.step("train").executables()
            found.append(
                (
                    executable.compiled_plan.team,
                    len(shared_units(model.training_program.step("train"))),
                )
            )
    # Products by weights, and their gradients by weights.
    assert found == [(2, 2), (1, 0)]
