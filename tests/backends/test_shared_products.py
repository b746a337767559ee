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
from kerasish.backends.static.lowering.recurrent import BackwardUnit
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


def shared_units(executable: Any) -> list[SharedProductUnit]:
    return [u for u in executable.units if isinstance(u, SharedProductUnit)]


def units_of(step: Any) -> list[SharedProductUnit]:
    return [unit for executable in step.executables() for unit in shared_units(executable)]


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
        (unit,) = units_of(step)
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
            assert units_of(model.training_program.step("train"))
            found.append([w.tobytes() for w in model.get_weights()])
    assert found[0] == found[1]


@pytest.mark.usefixtures("small_shares")
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_gradients_of_recurrent_kernels_are_shares(kind: str) -> None:
    x, y, found = numbers(5, 3, 20), numbers(5, 40, seed=1) / 8, []
    for eagerly in (False, True):
        kerasish.utils.set_random_seed(2)
        model = kerasish.Sequential([kerasish.Input((3, 20)), getattr(layers, kind)(40)])
        model.compile(kerasish.optimizers.SGD(0.1), "mse", run_eagerly=eagerly)
        with kerasish.config.using_threads(2):
            for _ in range(3):
                model.train_on_batch(x, y)
        if not eagerly:
            (executable,) = model.training_program.step("train").executables()
            (unit,) = (u for u in executable.units if isinstance(u, BackwardUnit))
            assert [len(p.shares) for p in unit.weights] == [2, 2]
        found.append(model.get_weights())
    for shared, expected in zip(*found, strict=True):
        np.testing.assert_allclose(shared, expected, 0, 1e-6)


def test_which_steps_take_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "processors", lambda: 2)
    COMPILED_PLANS.clear()
    dense = [kerasish.Input((256,)), layers.Dense(512)]
    images = [kerasish.Input((16, 16, 1)), layers.Conv2D(8, 3), layers.Flatten(), layers.Dense(512)]
    # All time steps of an LSTM are one loop; those of a large GRU are products of OpenMP's threads.
    lstm = [kerasish.Input((4, 64)), layers.LSTM(160), layers.Dense(512)]
    gru = [kerasish.Input((4, 64)), layers.GRU(160), layers.Dense(512)]
    small_gru = [kerasish.Input((4, 64)), layers.GRU(32), layers.Dense(512)]
    found = []
    with kerasish.config.using_threads(2):
        for parts in (dense, images, lstm, gru, small_gru):
            model = kerasish.Sequential(parts)
            model.compile("sgd", "mse")
            shape = model.inputs[0].shape[1:]
            model.train_on_batch(numbers(64, *shape), numbers(64, 512))
            (executable,) = model.training_program.step("train").executables()
            found.append((executable.compiled_plan.team, len(shared_units(executable))))
    # Products by weights, and their gradients by weights.
    assert found[:2] == [(2, 2), (1, 0)]
    assert [team for team, _ in found[2:]] == [2, 1, 2]
