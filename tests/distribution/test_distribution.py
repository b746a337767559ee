"""Keras's names in one process: meshes, layouts, distributions, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import rank_models as models
from rank_jobs import ROOT

import kerasish as keras
from kerasish.distribution import (
    DataParallel,
    DeviceMesh,
    LayoutMap,
    ModelParallel,
    TensorLayout,
    distribute_tensor,
    distribution,
    initialize,
    set_distribution,
)
from kerasish.ranks import bounds, current_sharding, tree_sum


@pytest.fixture(autouse=True)
def _no_distribution_afterwards():
    yield
    set_distribution(None)


def test_devices():
    assert keras.distribution.list_devices("cpu") == ["cpu:0"]
    assert keras.distribution.get_device_count("tpu") == 0
    with pytest.raises(ValueError, match='device_type is "cpu"'):
        keras.distribution.list_devices("abacus")


def test_meshes_and_layouts():
    mesh = DeviceMesh((2, 2), ["batch", "model"], list("abcd"))
    assert mesh.devices.tolist() == [["a", "b"], ["c", "d"]] and mesh.backend_mesh is mesh
    layout = TensorLayout([None, "model"])
    assert not layout.divides
    layout.device_mesh = mesh
    assert layout.divides and layout.axes == (None, "model") and layout.backend_layout is layout
    with pytest.raises(ValueError, match="make another layout"):
        layout.device_mesh = mesh
    with pytest.raises(ValueError, match=r"names of the mesh's axes \['batch', 'model'\]"):
        TensorLayout(["x"], mesh)
    for shape, names, devices in (((), [], None), ((1,), ["a", "b"], None), ((3,), ["a"], ["x"])):
        with pytest.raises(ValueError, match="DeviceMesh: "):
            DeviceMesh(shape, names, devices)


def test_layout_maps():
    layouts = LayoutMap(DeviceMesh((1,), ["batch"], ["cpu:0"]))
    layouts["dense.*kernel"] = TensorLayout([None, "batch"])
    layouts["dense.*bias"] = ("batch",)
    assert layouts["dense_3/kernel"].axes == (None, "batch")
    assert layouts["conv/kernel"] is None
    assert len(layouts) == 2 and list(layouts) == ["dense.*kernel", "dense.*bias"]
    layouts["kernel"] = (None, None)
    with pytest.raises(ValueError, match="several keys"):
        layouts["dense/kernel"]
    with pytest.raises(ValueError, match="delete it first"):
        layouts["kernel"] = (None,)
    with pytest.raises(ValueError, match="a TensorLayout or a tuple"):
        layouts["x"] = 3
    del layouts["kernel"]
    assert layouts["dense/kernel"].axes == (None, "batch")


def test_data_parallel_in_one_process():
    data_parallel = DataParallel()
    set_distribution(data_parallel)
    assert distribution() is data_parallel and current_sharding() is None
    assert data_parallel.num_model_replicas == data_parallel.num_processes == 1
    assert data_parallel.data_shard_id == 0 and data_parallel.batch_dim_name == "batch"
    assert data_parallel.get_data_layout((None, 3)).axes == ("batch", None)
    assert data_parallel.get_variable_layout(keras.Variable([1.0])).axes == (None,)
    assert data_parallel.get_tensor_layout("x") is None
    with DataParallel(shards=4).scope():
        assert current_sharding().shards == 4
    assert current_sharding() is None and distribution() is data_parallel


def test_what_is_refused():
    mesh = DeviceMesh((1, 1), ["batch", "model"], ["cpu:0"])
    with pytest.raises(ValueError, match="a mesh with one axis"):
        DataParallel(mesh)
    with pytest.raises(ValueError, match="2 devices for 1 processes"):
        DataParallel(devices=["cpu:0", "cpu:1"])
    with pytest.raises(ValueError, match="shards must be a multiple"):
        DataParallel(shards=0)
    with pytest.raises(ValueError, match="would have its own batches"):
        DataParallel(auto_shard_dataset=False)
    with pytest.raises(TypeError, match="expected DataParallel"):
        set_distribution("all of them")
    with pytest.raises(ValueError, match="layout_map"):
        ModelParallel()
    for shape in ((1, 2), (2, 1)):
        layouts = LayoutMap(DeviceMesh(shape, ["batch", "model"], ["cpu:0", "cpu:1"]))
        with pytest.raises(ValueError, match="ModelParallel: 2 devices for 1 processes"):
            ModelParallel(layout_map=layouts)
    with pytest.raises(ValueError, match="ModelParallel: shards must be a multiple"):
        ModelParallel(layout_map=LayoutMap(mesh), shards=-1)
    wide = TensorLayout(["batch"], DeviceMesh((2,), ["batch"], ["a", "b"]))
    with pytest.raises(ValueError, match="divides the tensor"):
        distribute_tensor(np.ones(2), wide)


def test_model_parallel_that_divides_nothing():
    layouts = LayoutMap(DeviceMesh((1, 1), ["batch", "model"], ["cpu:0"]))
    layouts["kernel"] = (None, "model")
    parallel = ModelParallel(layout_map=layouts, batch_dim_name="batch")
    set_distribution(parallel)
    assert parallel.num_model_replicas == 1 and current_sharding() is None
    x = np.ones(2)
    assert distribute_tensor(x, TensorLayout(["batch"], layouts.device_mesh)) is x


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        ({"num_processes": 4}, {}, "no launcher has started.*mpiexec -n 4"),
        ({}, {"KERAS_DISTRIBUTION_NUM_PROCESSES": "2"}, "num_processes=2, but no launcher"),
        ({}, {"KERAS_DISTRIBUTION_PROCESS_ID": "two"}, "expected a number, got 'two'"),
        ({"timeout": 0}, {}, "timeout must be"),
    ],
)
def test_initialize_without_a_launcher(arguments, environment, words, monkeypatch):
    for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=words):
        initialize(**arguments)


def test_one_process_imports_no_mpi():
    """Plain training, and `initialize` without a launcher, never touch mpi4py."""
    program = (
        "import json, sys, kerasish as k\n"
        "k.distribution.initialize()\n"
        "k.distribution.set_distribution(k.distribution.DataParallel())\n"
        "print(json.dumps('mpi4py' in sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert json.loads(done.stdout) is False


def test_bounds_and_trees():
    for rows in range(1, 40):
        for shards in range(1, 9):
            edges = [bounds(rows, shards, i) for i in range(shards + 1)]
            sizes = np.diff(edges)
            assert edges[0] == 0 and edges[-1] == rows
            assert sizes.max() - sizes.min() <= 1 and sizes[0] >= 1
    text = tree_sum(list("abcdefg"), lambda a, b: f"({a}{b})")
    assert text == "(((ab)(cd))((ef)g))"
    halves = [tree_sum(list("abcd"), lambda a, b: f"({a}{b})"), "x"]
    assert tree_sum(halves, lambda a, b: f"({a}{b})") == "(((ab)(cd))x)"


@pytest.mark.parametrize("backend", ["eager", "static"])
def test_an_own_train_step_gets_whole_batches(backend):
    class Own(keras.Model):
        rows: tuple[int, ...] = ()

        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            self.rows += (data[0].shape[0],)
            return super().train_step(data)

    before = keras.config.backend()
    keras.config.set_backend(backend)
    try:
        models.use_shards(2)
        model = Own()
        model.compile("sgd", "mse")
        with pytest.warns(UserWarning, match=r"its own train_step\(\)"):
            model.fit(np.ones((8, 2), "float32"), np.ones((8, 1), "float32"), 4, verbose=0)
        assert set(model.rows) == {4}
    finally:
        keras.config.set_backend(before)


@pytest.mark.parametrize("backend", ["eager", "static"])
def test_a_model_that_reads_values_gets_whole_batches(backend):
    class Asks(keras.Model):
        rows: tuple[int, ...] = ()

        def __init__(self):
            super().__init__()
            self.first, self.second = keras.layers.Dense(1), keras.layers.Dense(1)

        def call(self, x):
            self.rows += (x.shape[0],)
            return self.first(x) if keras.ops.sum(x) > 0 else self.second(x)

    before = keras.config.backend()
    keras.config.set_backend(backend)
    try:
        models.use_shards(2)
        model = Asks()
        model.compile("sgd", "mse")
        x = np.array([[1, 1]] * 4 + [[-1, -1]] * 4, "float32")
        with pytest.warns(UserWarning, match="reads values"):
            model.fit(x, np.ones((8, 1), "float32"), 4, verbose=0, shuffle=False)
        assert set(model.rows) == {4}
        assert len(model.trainable_variables) == 4
        assert int(model.optimizer.iterations) == 2
    finally:
        keras.config.set_backend(before)


@pytest.mark.parametrize("backend", ["eager", "static"])
def test_a_layer_built_late_is_an_error_in_shards(backend):
    class Late(keras.Model):
        hard = False

        def __init__(self):
            super().__init__()
            self.first, self.second = keras.layers.Dense(1), keras.layers.Dense(1)

        def call(self, x):
            return self.first(x) + (self.second(x) if self.hard else 0.0)

    before = keras.config.backend()
    keras.config.set_backend(backend)
    try:
        models.use_shards(2)
        model = Late()
        model.compile("sgd", "mse")
        x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
        model.fit(x, y, 4, verbose=0)
        model.hard = True
        with pytest.raises(ValueError, match="has built new weights"):
            model.train_on_batch(x, y)
    finally:
        keras.config.set_backend(before)
