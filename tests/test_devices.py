"""Devices: choice, movement, and the eager engine on a fake CuPy."""

import gc
import importlib
import pickle
import sys
import warnings

import fake_cupy
import numpy as np
import pytest

import kerasish
from kerasish import backends, devices, layers, ops
from kerasish.backends.eager import engine_of
from kerasish.devices import CPU, Device
from kerasish.errors import DeviceError, DeviceMemoryError
from kerasish.ops.op import using_engine
from kerasish.testing import check_backend


@pytest.fixture
def cupy(monkeypatch):
    with fake_cupy.installed(monkeypatch) as module:
        yield module


@pytest.fixture
def gpu(cupy):
    with kerasish.device("gpu") as device:
        yield device


def test_names():
    assert devices.parse("GPU:3") == devices.parse("cuda:3") == Device("gpu", 3)
    assert devices.parse("cpu:0") is CPU
    for wrong in ("tpu", "gpu:x", "", None, 3):
        with pytest.raises(ValueError, match="'cpu', 'gpu' or 'gpu:1'"):
            devices.parse(wrong)


def test_the_innermost_choice_counts(cupy, monkeypatch):
    assert devices.current() == CPU
    kerasish.config.set_device("gpu:0")
    assert str(devices.current()) == "gpu:0"
    with kerasish.device("cpu"):
        assert devices.current() == CPU
        assert kerasish.Tensor([1.0]).device == "cpu"
    assert kerasish.Tensor([1.0]).device == "gpu:0"
    kerasish.config.set_device(None)
    monkeypatch.setattr(devices._State, "automatic", None)
    monkeypatch.setenv("KERASISH_DEVICE", "gpu")
    assert str(devices.current()) == "gpu:0"


def test_a_missing_device_is_an_error_that_changes_nothing(cupy):
    with pytest.raises(DeviceError, match="gpu:7 does not exist: 1 GPUs"):
        kerasish.config.set_device("gpu:7")
    with pytest.raises(DeviceError, match="gpu:1"):
        kerasish.Tensor(1.0).to("gpu:1")
    assert devices.current() == CPU


def test_without_cupy_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with pytest.raises(DeviceError, match="gpu13"), kerasish.device("gpu"):
        pass


def _found_automatically(monkeypatch, **environment):
    monkeypatch.setattr(devices, "_has_driver", lambda: True)
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setenv("KERASISH_DEVICE", "auto")
    for name in ("CUDA_VISIBLE_DEVICES",):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return devices.current()


def test_auto_takes_a_gpu_that_works(cupy, monkeypatch):
    assert _found_automatically(monkeypatch) == Device("gpu")


def test_a_gpu_is_used_only_when_asked_for(cupy, monkeypatch):
    _found_automatically(monkeypatch)  # a driver, CuPy, and a GPU that works
    devices._State.automatic, devices._State.accelerated = None, False  # `cupy` puts them back
    monkeypatch.delenv("KERASISH_DEVICE")
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", lambda: 1 / 0)  # not called
    with pytest.warns(UserWarning, match="A GPU is present and not used") as said:
        assert devices.current() == CPU
    assert len(said) == 1 and "KERASISH_DEVICE=gpu" in str(said[0].message)
    assert kerasish.Tensor([1.0]).device == "cpu"  # said once: a second warning would be an error


def test_nothing_is_said_where_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(devices._State, "automatic", None)
    monkeypatch.setattr(devices, "_has_driver", lambda: False)
    monkeypatch.delenv("KERASISH_DEVICE", raising=False)
    assert devices.current() == CPU


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_are_left_alone(cupy, monkeypatch, hidden):
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", lambda: 1 / 0)  # not called
    assert _found_automatically(monkeypatch, CUDA_VISIBLE_DEVICES=hidden) == CPU


def test_the_gpus_that_cuda_is_shown_are_numbered_from_0(monkeypatch):
    # CUDA itself hides the others, and counts the visible ones from 0.
    with fake_cupy.installed(monkeypatch, devices=2):
        assert _found_automatically(monkeypatch, CUDA_VISIBLE_DEVICES="3,1") == Device("gpu", 0)
        with pytest.raises(DeviceError, match="gpu:3 does not exist: 2 GPUs are visible"):
            kerasish.Tensor(1.0).to("gpu:3")


def test_a_broken_driver_is_named_once(cupy, monkeypatch):
    def broken():
        raise RuntimeError("cudaErrorInsufficientDriver")

    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", broken)
    with pytest.warns(UserWarning, match=r"cudaErrorInsufficientDriver The CPU is used"):
        assert _found_automatically(monkeypatch) == CPU
    assert devices.current() == CPU  # said once: a second warning would be an error


@pytest.mark.parametrize(
    ("breaks", "why"),
    [
        ("zeros", "cannot be used: no kernel image is available"),
        ("import", "cannot be imported .libcudart.so.13: damaged"),
        ("numbers", "says that 0 . 1 is 0"),
    ],
)
def test_whatever_is_broken_the_cpu_serves(cupy, monkeypatch, breaks, why):
    def broken(*args, **kwargs):
        raise OSError("no kernel image is available")

    if breaks == "zeros":
        monkeypatch.setattr(cupy, "zeros", broken)
    elif breaks == "numbers":
        monkeypatch.setattr(cupy, "zeros", lambda *args: cupy.asarray([-1.0]))
    else:
        load = importlib.import_module

        def failing(name):
            if name == "cupy":
                raise OSError("libcudart.so.13: damaged")
            return load(name)

        monkeypatch.setattr(devices.importlib, "import_module", failing)
    with pytest.warns(UserWarning, match=rf"{why}.* The CPU is used instead") as said:
        assert _found_automatically(monkeypatch) == CPU
    assert len(said) == 1
    assert kerasish.Tensor([1.0]).device == "cpu"


def test_conformance(gpu, monkeypatch):
    monkeypatch.setattr(engine_of(gpu), "name", "fake")
    backends.register("fake", lambda: engine_of(gpu))
    try:
        check_backend("fake")
    finally:
        backends.unregister("fake")


def test_ops_run_where_their_data_lies(cupy):
    x = kerasish.Tensor([1.0, 2.0]).to("gpu")
    y = x * 2 + np.float32([1, 1])
    assert (x.device, y.device) == ("gpu:0", "gpu:0")
    assert y.tolist() == [3.0, 5.0]
    assert ops.ones(3).device == "cpu"
    assert (kerasish.Tensor([1.0, 1.0]) + y).device == "gpu:0"
    assert y.to("cpu").device == "cpu"
    again = pickle.loads(pickle.dumps(y))
    assert again.device == "cpu"
    assert again.tolist() == [3.0, 5.0]


def test_gradients_stay_on_the_device(gpu):
    x = kerasish.Tensor([1.0, 2.0], requires_grad=True)
    ops.sum(x**3).backward()
    assert x.grad.device == "gpu:0"
    assert x.grad.tolist() == [3.0, 12.0]


MODELS = {
    "mlp": (
        lambda: [layers.Dense(8, activation="relu"), layers.Dropout(0.3), layers.Dense(3)],
        lambda rng: rng.normal(size=(40, 5)).astype("float32"),
    ),
    "cnn": (
        lambda: [layers.Conv2D(4, 3), layers.BatchNormalization(), layers.MaxPooling2D(),
                 layers.Flatten(), layers.Dense(3)],
        lambda rng: rng.normal(size=(40, 8, 8, 2)).astype("float32"),
    ),
    "lstm": (
        lambda: [layers.Embedding(10, 4), layers.LSTM(5), layers.LayerNormalization(),
                 layers.Dense(3)],
        lambda rng: rng.integers(0, 10, (40, 6)),
    ),
}  # fmt: skip


def _model(name):
    kerasish.utils.set_random_seed(3)
    make, data = MODELS[name]
    x = data(np.random.default_rng(0))
    model = kerasish.Sequential([kerasish.Input(x.shape[1:], dtype=str(x.dtype)), *make()])
    loss = kerasish.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], run_eagerly=True)
    return model, x, np.arange(40) % 3


def _places(model):
    return {v.value.device for v in [*model.variables, *model.optimizer.variables]}


@pytest.mark.parametrize("name", MODELS)
def test_training_gives_the_cpus_numbers(name, cupy):
    model, x, y = _model(name)
    want = model.fit(x, y, batch_size=10, epochs=3, verbose=0).history
    with kerasish.device("gpu"):
        model, x, y = _model(name)
        got = model.fit(x, y, batch_size=10, epochs=3, verbose=0).history
        assert _places(model) == {"gpu:0"}
    np.testing.assert_allclose(got["loss"], want["loss"], rtol=1e-4)
    assert got["accuracy"] == want["accuracy"]


@pytest.mark.parametrize("name", MODELS)
def test_a_step_copies_its_batch_and_nothing_else(name, gpu):
    model, x, y = _model(name)
    model.fit(x, y, batch_size=10, verbose=0)
    before = dict(fake_cupy.counts)
    model.fit(x, y, batch_size=10, epochs=1, verbose=0)
    once = {k: n - before.get(k, 0) for k, n in fake_cupy.counts.items()}
    model.fit(x, y, batch_size=5, epochs=1, verbose=0)
    before = dict(fake_cupy.counts)
    model.fit(x, y, batch_size=5, epochs=1, verbose=0)
    twice = {k: n - before.get(k, 0) for k, n in fake_cupy.counts.items()}
    # Loss and accuracy are read at the epoch's end, whatever the number of steps is.
    assert once["to host"] == twice["to host"] == 2
    assert not fake_cupy.counts["synchronizations"]
    assert (once["to device"], twice["to device"]) == (8, 16)  # batches times (x, y)


def test_the_next_batch_travels_beside_this_ones_work(gpu):
    model, x, y = _model("mlp")
    model.fit(x, y, batch_size=10, verbose=0)
    del fake_cupy.log[:]
    model.fit(x, y, batch_size=10, verbose=0)
    one = [
        "record in the computing stream",  # what the batch after this one must wait for
        "wait in the copying stream",
        "copy in the copying stream",
        "record in the copying stream",
        "wait in the computing stream",
    ]
    copies = [entry for entry in fake_cupy.log if "host" not in entry]
    assert copies == one * 8


def test_models_and_optimizers_move(cupy):
    model, x, y = _model("mlp")
    model.fit(x, y, batch_size=10, verbose=0)
    assert _places(model) == {"cpu"}
    with kerasish.device("gpu"):
        model.fit(x, y, batch_size=10, verbose=0)
        assert _places(model) == {"gpu:0"}
        there = model.predict(x, verbose=0)
    here = model.predict(x, verbose=0)
    assert type(there) is np.ndarray
    np.testing.assert_allclose(here, there, rtol=1e-6)
    model.fit(x, y, batch_size=10, verbose=0)


def test_the_static_engine_takes_a_model_back(cupy):
    model, x, y = _model("mlp")
    with kerasish.device("gpu"):
        model.fit(x, y, batch_size=10, verbose=0)
        there = model.predict(x, verbose=0)
    model.compile(model.optimizer, model.loss)
    np.testing.assert_allclose(model.predict(x, verbose=0), there, rtol=1e-5, atol=1e-6)
    assert np.isfinite(model.train_on_batch(x, y))


@pytest.mark.parametrize("ending", [".keras", ".weights.h5"])
def test_checkpoints_move_between_devices(cupy, tmp_path, ending):
    path = str(tmp_path / f"model{ending}")
    with kerasish.device("gpu"):
        model, x, y = _model("mlp")
        model.fit(x, y, batch_size=10, verbose=0)
        (model.save if ending == ".keras" else model.save_weights)(path)
        want = model.predict(x, verbose=0)
    if ending == ".keras":
        again = kerasish.models.load_model(path)
    else:
        again = _model("mlp")[0]
        again.load_weights(path)
    np.testing.assert_allclose(again.predict(x, verbose=0), want, rtol=1e-6)
    with kerasish.device("gpu"):
        again.load_weights(path) if ending != ".keras" else None
        np.testing.assert_allclose(again.predict(x, verbose=0), want, rtol=1e-6)


@pytest.mark.parametrize(("saved", "read"), [("cpu", "gpu"), ("gpu", "cpu"), ("gpu", "gpu")])
def test_a_training_goes_on_on_another_device(cupy, tmp_path, saved, read):
    path = str(tmp_path / "model.keras")
    with kerasish.device(saved):
        model, x, y = _model("lstm")
        model.fit(x, y, batch_size=10, verbose=0)
        model.save(path)
    with kerasish.device(read):
        again = kerasish.models.load_model(path)
        for a, b in zip(model.optimizer.variables, again.optimizer.variables):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
        again.compile(again.optimizer, again.loss, run_eagerly=True)
        result = [again.train_on_batch(x[:20], y[:20]) for _ in range(3)]
        assert {v.value.device for v in again.optimizer.variables} == {str(devices.current())}
    with kerasish.device("cpu"):
        expected = [model.train_on_batch(x[:20], y[:20])[0] for _ in range(3)]
    np.testing.assert_allclose(np.ravel(result), expected, rtol=1e-5)


def test_out_of_memory_leaves_the_model_usable(gpu):
    model, x, y = _model("mlp")
    model.fit(x, y, batch_size=10, verbose=0)
    before = model.get_weights()
    kerasish.config.set_memory_limit(fake_cupy.pool.used + 20_000)
    big = np.zeros((4000, 5), "float32")
    said = r"batch: .* on gpu:0 \(used .* free .* total .*Out of memory allocating 81920 bytes"
    with pytest.raises(DeviceMemoryError, match=said) as caught:
        model.fit(big, np.zeros(4000), batch_size=4000, verbose=0)
    caught.value.__traceback__ = None
    kerasish.config.set_memory_limit(None)
    for old, new in zip(before, model.get_weights()):
        np.testing.assert_array_equal(old, new)
    model.fit(x, y, batch_size=10, verbose=0)


def test_out_of_memory_in_an_op_says_what_is_used(gpu):
    kerasish.config.set_memory_limit(fake_cupy.pool.used + 1000)
    x = kerasish.Tensor(np.ones(200, "float32"))
    with pytest.raises(DeviceMemoryError, match=r"add\(float32\[200\].*memory on gpu:0.*used"):
        x + x


def test_out_of_memory_on_the_way_says_what_is_used(gpu):
    kerasish.config.set_memory_limit(fake_cupy.pool.used + 1000)
    with pytest.raises(DeviceMemoryError, match=r"float32\[400\]: out of memory on gpu:0 .*free"):
        kerasish.Tensor(np.ones(400, "float32"))
    assert kerasish.Tensor(np.ones(40, "float32")).device == "gpu:0"


def test_out_of_memory_in_an_update_leaves_the_variables(gpu, monkeypatch):
    model, x, y = _model("mlp")
    model.fit(x, y, batch_size=10, verbose=0)
    before = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]

    def full(*args):
        raise fake_cupy.OutOfMemoryError("Out of memory allocating 9 bytes")

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["kerasish.backends.eager.gpu"], "update_by_formula", full)
        with pytest.raises(DeviceMemoryError, match=r"update of 4 variables: out of memory"):
            model.train_on_batch(x[:10], y[:10])
    seeds = {v.path for v in model.variables if "seed" in v.path}
    for v, old in zip((*model.variables, *model.optimizer.variables), before):
        if v.path not in seeds:
            np.testing.assert_array_equal(v.numpy(), old)
    model.fit(x, y, batch_size=10, verbose=0)


class CUDARuntimeError(RuntimeError):
    """As CuPy's."""


@pytest.mark.parametrize("where", ["op", "update", "batch"])
def test_a_fault_s_message_says_that_an_earlier_launch_may_be_meant(gpu, monkeypatch, where):
    def faulty(*args, **kwargs):
        raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access")

    said = rf"{where}.* on gpu:0: cudaErrorIllegalAddress.*earlier one.*CUDA_LAUNCH_BLOCKING=1"
    if where == "op":
        monkeypatch.setitem(engine_of(gpu)._kernels, ops.add, faulty)
        with pytest.raises(DeviceError, match=said.replace("op", r"add\(float32\[3\], ", 1)):
            kerasish.Tensor(np.ones(3, "float32")) + kerasish.Tensor(np.ones(3, "float32"))
        return
    model, x, y = _model("mlp")
    model.fit(x, y, batch_size=10, verbose=0)
    name = {"update": "gpu.update_by_formula", "batch": "feeding.np.copyto"}[where]
    monkeypatch.setattr(f"kerasish.backends.eager.{name}", faulty)
    with pytest.raises(DeviceError, match=said):
        model.train_on_batch(x[:10], y[:10])


def test_variables_never_share_the_memory_of_a_constant(gpu):
    engine = engine_of(gpu)
    with kerasish.device("cpu"):
        given = [kerasish.Variable(np.zeros(4, "float32")) for _ in range(4)]
        zeros = kerasish.Tensor(np.zeros(4, "float32"))

    def step():
        sums = [v + zeros for v in given]
        given[2].assign(ops.cast(zeros, "float32"))  # the constant itself
        return sums

    for _ in range(2):
        engine.compile(step)()
    with using_engine(engine):
        given[3].assign(ops.cast(zeros, "float32"))  # outside a step: seen by the next one
    engine.compile(step)()
    assert [v.latest.device for v in given] == ["gpu:0"] * 4
    addresses = [v.latest.value.data.ptr for v in given]
    constants = [a.data.ptr for a in engine._constants.values()]
    assert constants
    assert len({*addresses, *constants}) == len(addresses) + len(constants)


def test_memory_limits(cupy):
    with pytest.raises(ValueError, match="name a GPU"):
        kerasish.config.set_memory_limit(1000)
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="bytes as an int"):
            kerasish.config.set_memory_limit(wrong, "gpu")
    kerasish.config.set_memory_limit(12345, "gpu")
    assert fake_cupy.pool.limit == 12345
    kerasish.config.set_memory_limit(0.5, "gpu")
    assert fake_cupy.pool.limit == fake_cupy.TOTAL // 2
    assert devices.memory(Device("gpu"))["total"] == fake_cupy.TOTAL
    assert devices.memory(CPU) == {}


@pytest.mark.slow
def test_nothing_is_kept_of_a_dropped_model(gpu):
    def cycle():
        model, x, y = _model("mlp")
        model.fit(x, y, batch_size=10, verbose=0)

    cycle()
    gc.collect()
    before = fake_cupy.pool.used
    for _ in range(3):
        cycle()
        gc.collect()
    assert fake_cupy.pool.used <= before


def test_other_libraries_arrays_are_taken_as_they_are(cupy):
    theirs = cupy.asarray(np.arange(3.0, dtype="float32"))
    x = kerasish.Tensor(theirs)
    assert x.value is theirs
    assert x.__dlpack_device__() == (2, 0)
    np.testing.assert_array_equal(np.from_dlpack(theirs._a), [0, 1, 2])
    v = kerasish.Variable(np.zeros(3, "float32"))
    v.assign(theirs)
    assert v.value.device == "cpu"
    assert v.numpy().tolist() == [0, 1, 2]


class _Torch:
    """An object like torch's tensors on a GPU: no `copy`, nothing while gradients reach them."""

    def __init__(self, numbers, requires_grad=False):
        self.numbers, self.requires_grad = numbers, requires_grad

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")

    def detach(self):
        return _Torch(self.numbers)

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **options):
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        return self.numbers.__dlpack__()


def test_torch_s_tensors_on_the_gpu_are_taken_as_they_are(gpu):
    theirs = _Torch(np.arange(300, dtype="float32"), requires_grad=True)
    before = fake_cupy.counts["to device"]
    x = kerasish.Tensor(theirs)
    assert x.device == "gpu:0"
    assert x.value._a.ctypes.data == theirs.numbers.ctypes.data
    assert fake_cupy.counts["to device"] == before
    v = kerasish.Variable(np.zeros(300, "float32"))
    v.assign(theirs)
    theirs.numbers[0] = 7  # the variable's numbers are its own
    assert v.numpy()[:3].tolist() == [0, 1, 2]
    assert kerasish.function(lambda x: x * 2)(theirs).device == "gpu:0"


def test_variables_stay_where_they_lie(gpu):
    v = kerasish.Variable(np.zeros(3, "float32"))
    assert v.value.device == "gpu:0"
    with kerasish.device("cpu"):
        v.assign([1.0, 2.0, 3.0])
    assert v.value.device == "gpu:0"
    v.assign_add(np.ones(3))
    assert v.numpy().tolist() == [2.0, 3.0, 4.0]


def test_random_numbers_are_the_cpus(gpu):
    got = kerasish.random.normal((5, 7), seed=3)
    with kerasish.device("cpu"):
        want = kerasish.random.normal((5, 7), seed=3)
    assert (got.device, want.device) == ("gpu:0", "cpu")
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("backend", ["eager", "static"])
def test_batches_on_the_gpu_stay_there(cupy, backend):
    kerasish.config.set_backend(backend)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 4)).astype("float32"), rng.normal(size=(8, 1)).astype("float32")
    created = []
    for device in ("cpu", "gpu"):
        kerasish.utils.set_random_seed(3)
        with kerasish.device(device):
            model = kerasish.Sequential([layers.Input((4,)), layers.Dense(1)])
            model.compile("sgd", "mse")
            given = (x, y) if device == "cpu" else (kerasish.Tensor(x), kerasish.Tensor(y))
            model.train_on_batch(*given)
            model.test_on_batch(*given)
            fake_cupy.counts.clear()
            losses = [model.train_on_batch(*given), model.test_on_batch(*given)]
            assert fake_cupy.counts["to device"] == 0
            with pytest.raises(ValueError, match="x: 8, y: 7"):
                model.train_on_batch(given[0], given[1][:7])
        losses.append(model.train_on_batch(kerasish.Tensor(x), y))  # on the CPU, as arrays are
        created.append(losses)
    np.testing.assert_allclose(created[0], created[1], rtol=1e-5)


def test_functions_follow_the_device(cupy):
    @kerasish.function
    def double(x):
        return x * 2

    assert double(np.ones(2, "float32")).device == "cpu"
    with kerasish.device("gpu"):
        assert double(np.ones(2, "float32")).device == "gpu:0"


def test_a_machine_without_gpus_hears_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert devices._first_gpu() == CPU or devices._has_driver()
