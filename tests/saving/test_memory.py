"""Loading takes the memory of the weights once; a failed load computes first values again."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import kerasish as keras
from kerasish.saving import match as matching

LAYERS, WIDTH = 16, 1100
SCRIPT = """
import os, resource, sys
import kerasish as keras

folder, layers, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
keras.config.set_backend("eager")


def make(layers=layers, width=width):
    dense = [keras.layers.Dense(width) for _ in range(layers)]
    return keras.Sequential([keras.Input((width,)), *dense])


def now():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def in_child(work):
    sys.stdout.flush()
    child = os.fork()
    if child:
        if os.waitpid(child, 0)[1]:
            raise SystemExit("a child failed")
        return
    try:
        work()
        sys.stdout.flush()
        os._exit(0)
    finally:
        os._exit(1)


def save():
    model = make()
    for ending in ("keras", "h5"):
        model.save(f"{folder}/m.{ending}")
    for ending in ("weights.h5", "safetensors"):
        model.save_weights(f"{folder}/m.{ending}")
    model.save_weights(f"{folder}/m.weights.json", max_shard_size=0.05)
    model.export(f"{folder}/m.archive", verbose=False)
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    model.save(f"{folder}/adam.keras")


def load(name):
    small = make(1, 200)  # what the first load imports and compiles is there before
    small.save_weights(f"{folder}/small.weights.h5")
    small.load_weights(f"{folder}/small.weights.h5")
    base = now()
    if name.endswith("archive"):
        held = keras.saving.load_archive(f"{folder}/{name}")
    elif name.endswith("keras") or name == "m.h5":
        held = keras.saving.load_model(f"{folder}/{name}")
    else:
        held = make()
        held.load_weights(f"{folder}/{name}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    times = 3 if name == "adam.keras" else 1
    print(name, (peak - base) / (4 * layers * width * width * times))


in_child(save)
for name in sys.argv[4:]:
    in_child(lambda: load(name))
"""
FILES = (
    "m.keras", "m.h5", "m.weights.h5", "m.safetensors", "m.weights.json", "m.archive", "adam.keras"
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and forks")
def test_models_are_loaded_without_a_second_copy(tmp_path):
    arguments = [str(tmp_path), str(LAYERS), str(WIDTH), *FILES]
    report = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, timeout=300
    )
    assert report.returncode == 0, report.stderr
    ratios = {name: float(ratio) for name, ratio in map(str.split, report.stdout.splitlines())}
    assert ratios.keys() == set(FILES)
    assert all(0.9 < ratio < 1.3 for ratio in ratios.values()), ratios


def small_model():
    layers = keras.layers
    return keras.Sequential(
        [keras.Input((5,)), layers.Dense(4), layers.BatchNormalization(), layers.Dense(3)]
    )


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("ending", ["weights.h5", "safetensors"])
def test_a_failed_load_brings_back_what_was_there(tmp_path, monkeypatch, ending, trained):
    model, path = small_model(), tmp_path / f"m.{ending}"
    model.compile("adam", "mse")
    small_model().save_weights(path)
    if trained:
        model.fit(np.ones((4, 5)), np.ones((4, 3)), verbose=0)
    before = model.get_weights()
    kept = [v.recipe() is None for v in model.weights]
    assert all(kept) if trained else not any(kept)
    read, reads = matching.LoadPlan._read, []

    def fail_late(plan, entry, dtype):
        reads.append(entry)
        if len(reads) == len(before):
            raise ValueError("the disk is gone")
        return read(plan, entry, dtype)

    monkeypatch.setattr(matching.LoadPlan, "_read", fail_late)
    with pytest.raises(ValueError, match="the disk is gone"):
        model.load_weights(path)
    for array, old in zip(model.get_weights(), before):
        np.testing.assert_array_equal(array, old)
    monkeypatch.undo()
    model.load_weights(path)
    assert all(v.recipe() is None for v in model.weights)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["glorot_uniform", "he_normal", "orthogonal", "zeros", "ones"])
def test_first_values_are_computed_again_bit_for_bit(name, policy):
    dense = keras.layers.Dense(7, kernel_initializer=name, dtype=policy)
    dense.build((None, 5))
    again = dense.kernel.recipe()()
    assert again.dtype == dense.kernel.numpy().dtype
    assert again.tobytes() == dense.kernel.numpy().tobytes()


def test_other_values_are_not_computed_again():
    class Mine(keras.initializers.RandomNormal):
        def __call__(self, shape, dtype=None):
            return super().__call__(shape, dtype) + 1

    drawn = keras.initializers.RandomNormal(seed=keras.random.SeedGenerator(1))
    for initializer in (Mine(seed=1), drawn, lambda shape, dtype=None: np.ones(shape), np.ones(3)):
        assert keras.Variable(initializer, shape=(3,), dtype="float32").recipe() is None
    variable = keras.Variable(keras.initializers.RandomNormal(seed=1), shape=(3,))
    assert variable.recipe() is not None
    for same in (copy.deepcopy(variable), pickle.loads(pickle.dumps(variable))):
        assert same.recipe() is None
        np.testing.assert_array_equal(same.numpy(), variable.numpy())
    variable.assign_add([1.0, 1.0, 1.0])
    assert variable.recipe() is None


def test_a_changed_initializer_does_not_change_the_recipe():
    initializer = keras.initializers.RandomNormal(seed=1)
    variable = keras.Variable(initializer, shape=(3,))
    initializer.seed, initializer.stddev = 2, 5.0
    np.testing.assert_array_equal(variable.recipe()(), variable.numpy())
