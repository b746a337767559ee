"""Checks that run on every rank of a job: `mpiexec -n 2 python rank_checks.py NAME ...`.

Each check is a function; what it asserts must hold on every rank. The names of those that have
passed on all ranks are printed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rank_models as models
from rank_parts import join, on_first_rank

import kerasish as keras
from kerasish.backends import choose
from kerasish.ranks import current_group, tree_sum


def check_sums() -> None:
    group = current_group()
    half = np.full(3, 0.1 + group.rank, "float16")
    assert keras.ops.all_sum(half).dtype == "float16"
    assert keras.ops.all_sum(np.float32(1.0)).shape == ()
    for dtype in ("float32", "float64", "int32", "int8"):
        for size in (0, 1, 5, 1000, 70001):
            x = (np.arange(size) % 97 + group.rank * 0.37).astype(dtype)
            parts = [(np.arange(size) % 97 + r * 0.37).astype(dtype) for r in range(group.size)]
            total = keras.ops.all_sum(x)
            assert np.array_equal(np.asarray(total), tree_sum(parts))


def check_sums_in_place() -> None:
    """Compiled sums take the memory of their summands only where nothing else reads these."""
    group = current_group()
    ranks = range(group.size)
    for read_again in (False, True):

        def step(x: Any, again: bool = read_again) -> Any:
            double = x * 2.0
            total = keras.ops.all_sum(double)
            return total + double if again else total * 1.0

        compiled = choose("static").compile(step)
        for size in (3, 70001):
            x = np.arange(size, dtype="float32")
            expected = tree_sum([2 * (x + r) for r in ranks])
            found = np.asarray(compiled(x + group.rank))
            assert np.array_equal(found, expected + 2 * (x + group.rank) * read_again)


def check_same_bits() -> None:
    """Four shards: the same bits in one process and on the ranks, on both engines.

    The thread that lets MPI progress runs, as it does between machines.
    """
    current_group().between_machines = True  # type: ignore[attr-defined]
    for backend in ("eager", "static"):
        keras.config.set_backend(backend)
        for name in ("mlp", "normalized") if backend == "static" else ("mlp",):

            def train(model: str = name) -> str:
                models.use_shards(4)
                return models.train(model)

            expected = on_first_rank(train)
            models.use_shards(4)
            found = current_group().gather(models.train(name))
            assert set(found) == {expected}, (backend, name, expected, found)
    current_group().between_machines = False  # type: ignore[attr-defined]
    running = [thread.name for thread in threading.enumerate()]
    assert "kerasish-progress" in running, running
    models.use_shards(current_group().size)


def check_equals_one_process() -> None:
    """Uneven rows: 1,000 rows in batches of 128, 333 for validation; logs, weights, predict."""
    keras.config.set_backend("static")
    x, y = models.data(1000)

    def run() -> tuple[Any, ...]:
        model = models.compiled("smooth")
        history = model.fit(
            x, y, batch_size=128, epochs=2, verbose=0, validation_data=(x[:333], y[:333])
        )
        scores = model.evaluate(x[:101], y[:101], verbose=0)
        return model.get_weights(), history.history, scores, model.predict(x[:77], verbose=0)

    weights, logs, scores, outputs = on_first_rank(run)
    own = run()
    assert models.greatest_difference(own[0], weights) < 1e-6
    for key, values in logs.items():
        np.testing.assert_allclose(own[1][key], values, rtol=1e-6)
    np.testing.assert_allclose(own[2], scores, rtol=1e-6)
    np.testing.assert_allclose(own[3], outputs, rtol=1e-5, atol=1e-6)
    gathered = current_group().gather(repr((own[1], own[2])))
    assert len(set(gathered)) == 1, gathered


def check_synchronized() -> None:
    """Moments of the whole batch: what one process computes."""
    x, y = models.data(90)
    for backend in ("eager", "static"):
        keras.config.set_backend(backend)

        def run() -> tuple[Any, ...]:
            model = models.compiled("synchronized", optimizer="sgd")
            history = model.fit(x, y, batch_size=32, epochs=2, verbose=0)
            return model.get_weights(), history.history

        weights, logs = on_first_rank(run)
        found, own = run()
        for a, b in zip(found, weights):  # a bias before it has gradients that are only rounding
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(own["loss"], logs["loss"], rtol=1e-6)
    models.use_shards(2 * current_group().size)
    with pytest.raises(ValueError, match="needs the moments of a whole batch"):
        models.train("synchronized")
    models.use_shards(current_group().size)


def check_native() -> None:
    """The step stays one native call, and many steps run in one."""
    keras.config.set_backend("static")
    model = models.compiled("mlp")
    x, y = models.data(128)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(x, y, batch_size=32, epochs=1, verbose=0)
    [(_, step)] = model.training_program.compiled_steps("train")
    assert all(e.is_native for e in step.inner.executables())
    run = step.over_rows([x, y], lambda f: (f[0], f[1], None), np.arange(128), 32)
    assert run is not None and run.left == 4


def check_sources() -> None:
    """Generators, a PyDataset, several inputs and outputs, calls for one batch."""
    keras.config.set_backend("eager")
    x, y = models.data(50)
    both = {"a": x[:, :8], "b": x[:, 8:]}
    targets = {"p": y, "q": x[:, :1]}

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, number: int) -> Any:
            part = slice(17 * number, 17 * number + 17)
            return ({k: v[part] for k, v in both.items()}, {k: v[part] for k, v in targets.items()})

    def generate() -> Iterator[Any]:
        while True:
            for number in range(3):
                yield Batches()[number]

    def run() -> tuple[list[Any], list[Any]]:
        keras.utils.set_random_seed(2)
        a, b = (keras.Input((n,), name=k) for k, n in (("a", 8), ("b", 12)))
        joined = keras.layers.Concatenate()([keras.layers.Dense(6, activation="tanh")(a), b])
        outputs = {"p": keras.layers.Dense(10, "softmax", name="p")(joined),
                   "q": keras.layers.Dense(1, name="q")(joined)}  # fmt: skip
        model = keras.Model({"a": a, "b": b}, outputs)
        model.compile(
            "sgd", {"p": "sparse_categorical_crossentropy", "q": "mse"}, {"q": 0.5},
            metrics={"p": "accuracy", "q": "mae"},
        )  # fmt: skip
        numbers: list[Any] = []
        for source, steps in ((Batches(), None), (generate(), 3)):
            logs = model.fit(source, epochs=2, steps_per_epoch=steps, verbose=0).history
            numbers.extend(v for values in logs.values() for v in values)
        logs = model.fit(both, targets, batch_size=20, verbose=0, shuffle="batch").history
        numbers.extend(v for values in logs.values() for v in values)
        numbers.extend(model.train_on_batch(both, targets, return_dict=True).values())
        numbers.extend(model.test_on_batch(both, targets, return_dict=True).values())
        numbers.extend(model.evaluate(Batches(), verbose=0, return_dict=True).values())
        outputs = model.predict(both, batch_size=20, verbose=0)
        assert outputs["p"].shape == (50, 10)
        return numbers, [*model.get_weights(), *outputs.values()]

    numbers, arrays = on_first_rank(run)
    found, own = run()
    np.testing.assert_allclose(found, numbers, rtol=2e-6)
    assert models.greatest_difference(own, arrays) < 2e-6


def check_few_rows() -> None:
    """Fewer rows than ranks, or one for each: no rank is left out, none stops."""
    x, y = models.data(9)
    for name, rows in (("smooth", 8), ("joined", current_group().size)):

        def run(name: str = name, rows: int = rows) -> tuple[Any, ...]:
            model = models.compiled(name)
            history = model.fit(x, y, batch_size=rows, epochs=2, verbose=0, shuffle=False).history
            return history["loss"], model.get_weights(), model.predict(x[:1], verbose=0)

        losses, weights, outputs = on_first_rank(run)
        found = run()
        np.testing.assert_allclose(found[0], losses, rtol=1e-6)
        assert models.greatest_difference(found[1], weights) < 1e-6, name
        np.testing.assert_allclose(found[2], outputs, rtol=1e-5)


def check_resume() -> None:
    """A training continues with the same bits on another number of ranks, inside an epoch too."""
    keras.config.set_backend("static")
    group = current_group()
    x, y = models.data(96)

    def fit(folder: Path, epochs: int) -> str:
        model = models.compiled("mlp")
        models.use_shards(4)
        resume = keras.callbacks.Resume(folder, every=2, seconds=None, background=False)
        history = model.fit(x, y, batch_size=16, epochs=epochs, verbose=0, resume=resume)
        return models.digest(model, history)

    with shared_folder() as folder:

        def begin() -> str:
            expected = fit(folder / "whole", 3)
            fit(folder / "begun0", 2)
            drop_latest(folder / "begun0")
            return expected

        expected = on_first_rank(begin)
        found = fit(folder / "begun0", 3)
        assert set(group.gather(found)) == {expected}, (expected, found)
        fit(folder / "ranks", 2)

        def go_on() -> str:
            drop_latest(folder / "ranks")
            return fit(folder / "ranks", 3)

        assert on_first_rank(go_on) == expected
    models.use_shards(group.size)


def drop_latest(folder: Path) -> None:
    """Remove the latest state: the one before it is inside an epoch."""
    states = sorted(p for p in folder.iterdir() if p.is_file() and p.stat().st_size)
    assert len(states) >= 2, states
    states[-1].unlink()


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder for all ranks, removed after the block."""
    group = current_group()
    path = Path(group.broadcast(tempfile.mkdtemp() if group.rank == 0 else None))
    yield path
    group.gather(None)
    if group.rank == 0:
        shutil.rmtree(path)


def check_callbacks() -> None:
    """Only rank 0 writes files; all stop and lower the rate in the same epoch."""
    group = current_group()
    written: list[str] = []

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            written.append(str(args[0]))

    class StopsOnRankOne(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = epoch == 2 and group.rank == 1

    x, y = models.data(96)
    with shared_folder() as folder:
        sys.addaudithook(watch)
        model = models.compiled("smooth")
        cb = keras.callbacks
        history = model.fit(
            x, y, batch_size=32, epochs=8, verbose=0, validation_split=0.3,
            callbacks=[
                cb.CSVLogger(str(folder / "log.csv")),
                cb.ModelCheckpoint(str(folder / "{epoch}.weights.h5"), save_weights_only=True),
                cb.BackupAndRestore(str(folder / "backup")),
                cb.Profiler(str(folder / "page.html"), batches=(1, 2)),
                cb.ReduceLROnPlateau(monitor="loss", patience=1, min_delta=10.0),
                StopsOnRankOne(),
            ],
        )  # fmt: skip
        here = [name for name in written if name.startswith(str(folder))]
        assert bool(here) == (group.rank == 0), here
        assert len(history.epoch) == 3
        assert len(set(group.gather(repr(history.history)))) == 1
        if group.rank == 0:
            assert len((folder / "log.csv").read_text("utf-8").splitlines()) == 4
            assert {p.name for p in folder.glob("*.h5")} == {f"{i}.weights.h5" for i in (1, 2, 3)}


CHECKS = {k.removeprefix("check_"): f for k, f in globals().items() if k.startswith("check_")}


def main(checks: dict[str, Callable[[], None]], names: list[str]) -> None:
    group = join(timeout=60)
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    assert group.size > 1 and keras.distribution.get_device_count() == group.size
    for name in names or list(checks):
        checks[name]()
        if all(group.gather(True)) and group.rank == 0:
            print(f"passed {name}", flush=True)


if __name__ == "__main__":
    main(CHECKS, sys.argv[1:])
