"""The eager engine of a GPU, on the fake CuPy, with the CUDA kernels run on the CPU."""

from __future__ import annotations

import fake_cupy
import numpy as np
import pytest
from cuda_on_cpu import signatures

import kerasish
from kerasish import devices, layers, ops, optimizers
from kerasish.backends.eager import Eager
from kerasish.backends.eager import gpu as gpu_engine
from kerasish.backends.eager.cuda import KERNELS
from kerasish.backends.eager.cuda.kernels import source
from kerasish.ops.op import REGISTRY, using_engine


def _input(given, rng, dtype):
    if callable(given):
        made = given(rng)
        return made.astype(dtype) if made.dtype.kind == "f" else made
    if isinstance(given, tuple):
        return rng.standard_normal(given).astype(dtype)
    return given


def _examples():
    for name in sorted(KERNELS):
        for i, (inputs, attrs) in enumerate(REGISTRY[name].examples):
            yield pytest.param(REGISTRY[name], inputs, attrs, id=f"{name}-{i}")


def _numbers(result):
    many = result if isinstance(result, tuple) else (result,)
    return [ops.convert_to_numpy(r) for r in many]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("op", "inputs", "attrs"), list(_examples()))
def test_each_entry_of_the_table_gives_what_numpy_gives(gpu, op, inputs, attrs, dtype):
    rng = np.random.default_rng(3)
    arrays = [_input(given, rng, dtype) for given in inputs]
    with using_engine(Eager()):
        expected = _numbers(op(*arrays, **attrs))
    with kerasish.device("gpu"), using_engine(gpu):
        found = op(*(kerasish.Tensor(a) for a in arrays), **attrs)
        many = found if isinstance(found, tuple) else (found,)
        assert all(t.device == "gpu:0" for t in many)
    for a, b in zip(_numbers(found), expected):
        assert a.dtype == b.dtype
        size = max(1.0, np.abs(b).max(initial=0))
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * size)


def _losses(model, x, y, device, optimizer="adam"):
    kerasish.utils.set_random_seed(4)
    with kerasish.device(device):
        model = model()
        model.compile(optimizer, "sparse_categorical_crossentropy", run_eagerly=True)
        history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False)
    return history.history["loss"], model.get_weights()


def _image_model():
    return kerasish.Sequential(
        [layers.Input((8, 8, 2)), layers.Conv2D(4, 3, activation="relu", padding="same"),
         layers.MaxPooling2D(2), layers.SeparableConv2D(6, 3, use_bias=False),
         layers.BatchNormalization(), layers.GlobalAveragePooling2D(),
         layers.Dropout(0.3), layers.Dense(3, "softmax")]
    )  # fmt: skip


def _text_model():
    return kerasish.Sequential(
        [layers.Input((6,), dtype="int32"), layers.Embedding(20, 5, mask_zero=True),
         layers.GRU(4, return_sequences=True), layers.LSTM(4), layers.Dense(3, "softmax")]
    )  # fmt: skip


@pytest.mark.parametrize("name", ["images", "text"])
def test_models_train_as_on_the_cpu(gpu, name):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 48)
    if name == "images":
        model, x = _image_model, rng.standard_normal((48, 8, 8, 2)).astype("float32")
    else:
        model, x = _text_model, rng.integers(0, 20, (48, 6)).astype("int32")
    losses, weights = _losses(model, x, y, "cpu")
    fake_cupy.launches.clear()
    found, moved = _losses(model, x, y, "gpu")
    np.testing.assert_allclose(found, losses, rtol=1e-4)
    for a, b in zip(moved, weights):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4)
    assert fake_cupy.launches["adam_update"] == 6  # one for each step
    expected = {
        "images": {
            "windows_to_rows",
            "pool_largest_gradient",
            "depthwise",
            "dropout",
            "moment_parts",
            "batch_gradient",
            "column_totals",
        },
        "text": {"gather_int", "scatter_chunks", "gru_step_gradient", "lstm_step_gradient"},
    }
    assert expected[name] <= set(fake_cupy.launches)


@pytest.mark.parametrize(
    ("options", "kernels"),
    [
        ({"activation": "relu"}, {"bias_activation", "bias_activation_gradient", "column_totals"}),
        (
            {"activation": "relu", "use_bias": False},
            {"bias_activation", "bias_activation_gradient"},
        ),
        ({"activation": None}, {"bias_activation", "column_totals"}),
        ({"activation": "tanh"}, {"bias_activation", "column_totals"}),
        ({"activation": None, "use_bias": False}, set()),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_dense_adds_its_bias_and_relu_in_passing(gpu, options, kernels, dtype):
    layer = layers.Dense(3, dtype=dtype, **options)
    layer.build((None, 4))
    x = kerasish.Tensor(np.ones((5, 4), "float32"))
    step = kerasish.value_and_grad(
        lambda x: ops.sum(ops.square(layer(x))), argnums=0, variables=layer.trainable_variables
    )
    found = []
    for engine in (Eager(), gpu):
        fake_cupy.launches.clear()
        value, slopes = engine.compile(step)(x.to(getattr(engine, "device", "cpu")))
        found.append([value, *kerasish.tree.flatten(slopes)])
    assert set(fake_cupy.launches) - {"column_parts"} == kernels
    for a, b in zip(*found):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5 if dtype == "float32" else 0.05)


def test_attention_adds_the_biases_of_its_projections_in_passing(gpu):
    layer = layers.MultiHeadAttention(2, 4)
    layer.build((2, 3, 8), (2, 3, 8))
    x = kerasish.Tensor(np.random.default_rng(0).standard_normal((2, 3, 8)).astype("float32"))
    for v in layer.trainable_variables:
        v.assign(np.random.default_rng(1).standard_normal(v.shape).astype("float32") / 2)
    step = kerasish.value_and_grad(
        lambda x: ops.sum(ops.square(layer(x, x))), argnums=0, variables=layer.trainable_variables
    )
    found = []
    for engine in (Eager(), gpu):
        fake_cupy.launches.clear()
        value, slopes = engine.compile(step)(x.to(getattr(engine, "device", "cpu")))
        found.append([value, *kerasish.tree.flatten(slopes)])
    assert fake_cupy.launches["bias_activation"] == 4  # query, key, value, result
    for a, b in zip(*found):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-4)


def _small_model():
    return kerasish.Sequential([layers.Input((4,)), layers.Dense(5, "tanh"), layers.Dense(3)])


@pytest.mark.parametrize(
    ("make", "kernel"),
    [
        (lambda: optimizers.SGD(0.1), "sgd_update"),
        (lambda: optimizers.SGD(0.1, 0.9, nesterov=True, clipvalue=0.5), "sgd_update"),
        (lambda: optimizers.SGD(0.1, 0.9, use_ema=True), "sgd_update"),
        (lambda: optimizers.AdamW(0.01, weight_decay=0.1), "adam_update"),
        (lambda: optimizers.Adam(0.01, global_clipnorm=0.2), "adam_update"),
        (lambda: optimizers.Adam(0.01, gradient_accumulation_steps=2), "adam_update"),
        (
            lambda: optimizers.Adam(optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)),
            "adam_update",
        ),
        (lambda: optimizers.Adam(0.01, amsgrad=True), "adam_update"),
        (lambda: optimizers.SGD(0.1, 0.9, global_clipnorm=0.2, weight_decay=0.1), "sgd_update"),
        (lambda: optimizers.Nadam(0.01), "nadam_update"),
        (lambda: optimizers.Nadam(0.01, global_clipnorm=0.2), "nadam_update"),
        (lambda: optimizers.RMSprop(0.01), "rmsprop_update"),
        (lambda: optimizers.Lamb(0.01), None),
        (lambda: optimizers.Lamb(0.01, global_clipnorm=0.2), None),
    ],
)
def test_optimizers_update_all_variables_at_once(gpu, make, kernel):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((48, 4)).astype("float32"), rng.integers(0, 3, 48)
    loss = "mean_squared_error"
    made = []
    for device in ("cpu", "gpu"):
        kerasish.utils.set_random_seed(1)
        fake_cupy.launches.clear()
        with kerasish.device(device):
            model = _small_model()
            model.compile(make(), loss, run_eagerly=True)
            model.fit(x, np.eye(3, dtype="float32")[y], batch_size=16, epochs=2, verbose=0)
        made.append((model.get_weights(), [v.numpy() for v in model.optimizer.variables]))
    updates = dict(fake_cupy.launches)
    launched = {k: n for k, n in updates.items() if k.endswith("_update")}
    assert launched == ({} if kernel is None else {kernel: 6})
    assert updates.get("norm_of_parts", 0) == (6 if model.optimizer.global_clipnorm else 0)
    for a, b in zip(made[0][0] + made[0][1], made[1][0] + made[1][1]):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_a_cast_to_the_same_dtype_copies_nothing(gpu, dtype):
    with kerasish.device("gpu"), using_engine(gpu):
        x = kerasish.Tensor(np.ones((30, 5), dtype))
        fake_cupy.work.clear()
        assert ops.cast(x, dtype).value is x.value
        assert not fake_cupy.work.launches
        assert ops.cast(x, "float16").numpy().tolist() == np.ones((30, 5)).tolist()
        assert fake_cupy.work.launches == {"astype": 1}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_relu_and_its_gradient_are_a_launch_each(gpu, dtype):
    numbers = np.array([[-1.0, 0.0, 2.0, np.nan], [np.inf, -np.inf, -0.0, 3.0]], "float32")
    found = []
    for engine, device in ((Eager(), "cpu"), (gpu, "gpu")):
        with kerasish.device(device), using_engine(engine):
            x = ops.cast(kerasish.Tensor(numbers), dtype)
            fake_cupy.work.clear()
            y, slope = kerasish.value_and_grad(lambda x: ops.relu(x).sum())(x)
            found += [y.numpy(), slope.numpy(), ops.relu(x).numpy()]
    launched = fake_cupy.work.launches
    assert (launched["bias_activation"], launched["bias_activation_gradient"]) == (2, 1)
    assert not launched.keys() & {"maximum", "greater", "multiply", "zeros"}
    for a, b in zip(found[:3], found[3:]):
        np.testing.assert_array_equal(a.astype("float32"), b.astype("float32"))


def test_nothing_is_written_for_gradients_that_no_code_asks_for(gpu):
    rng = np.random.default_rng(0)
    with kerasish.device("gpu"), using_engine(gpu):
        x, g, b = (
            kerasish.Tensor(rng.standard_normal(s).astype("float32")) for s in [(6, 5), (5,), (5,)]
        )
        classes = kerasish.Tensor(np.zeros(6, "int32"))
        fake_cupy.work.clear()
        kerasish.grad(lambda x: ops.layer_normalization(x, g, b).sum())(x)
        kerasish.grad(
            lambda x: ops.sparse_categorical_crossentropy(classes, x, from_logits=True).sum()
        )(x)
    assert fake_cupy.work.launches["full"] == 0  # the sums' gradients begin with kept ones
    assert fake_cupy.work.launches["fill"] == 0


def test_small_arrays_of_numbers_alone_are_made_once(gpu, monkeypatch):
    monkeypatch.setattr(gpu_engine, "MOST_CONSTANTS", 2)
    with kerasish.device("gpu"), using_engine(gpu):
        fake_cupy.work.clear()
        first, again = (ops.arange(64, dtype="int32") for _ in range(2))
        zeros = ops.zeros((3, 4), "float16")
        assert ops.full((2,), -0.0).numpy().tobytes() != ops.zeros(2).numpy().tobytes()
        assert first.value is again.value
        np.testing.assert_array_equal(first.numpy(), np.arange(64, dtype="int32"))
        assert (zeros.dtype, zeros.numpy().tolist()) == ("float16", [[0] * 4] * 3)
        assert not fake_cupy.work.launches
        large = [ops.zeros(devices.MOST_CREATED // 4 + 1) for _ in range(2)]
        assert large[0].value is not large[1].value
        assert fake_cupy.work.launches["full"] == 2
        # Forgotten since, for there were too many: two variables may still not share it.
        assert first.value is not ops.arange(64, dtype="int32").value
        assert gpu.is_kept(first.value)
        values = [gpu.for_variable(first).value for _ in range(2)]
        assert values[0] is not values[1]
        np.testing.assert_array_equal(values[1].get(), first.numpy())


def test_who_takes_a_constant_by_dlpack_may_write_to_it(gpu):
    with kerasish.device("gpu"), using_engine(gpu):
        taken = ops.full((5,), 3.0)
        theirs = np.from_dlpack(_Exported(taken))
        assert theirs.tolist() == [3] * 5
        assert theirs.ctypes.data != taken.value.data.ptr  # the memory is not the constant's


class _Exported:
    """A tensor of the fake GPU, as NumPy takes it: its memory is the CPU's."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


def _step(layer, x):
    def loss(x):
        y = layer(x, training=True) if isinstance(layer, layers.BatchNormalization) else layer(x)
        ramp = np.linspace(-1, 1, x.size, dtype="float32").reshape(x.shape)
        return ops.sum(ops.cast(y, "float32") * ramp)

    return kerasish.value_and_grad(loss, argnums=0, variables=layer.trainable_variables)(x)


NORMS = {
    "batch": lambda **k: layers.BatchNormalization(**k),
    "layer": lambda **k: layers.LayerNormalization(**k),
    "group": lambda **k: layers.GroupNormalization(2, **k),
    "rms": lambda **k: layers.RMSNormalization(**k),
}


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16", "float32"])
@pytest.mark.parametrize("name", NORMS)
def test_normalizations_read_16_bits_where_they_are_given_16_bits(gpu, name, dtype):
    """The bytes of a layer's forward and backward pass, without those of its loss."""
    numbers = np.random.default_rng(0).standard_normal((64, 8, 8, 16)).astype("float32") + 3
    kind = dtype.removeprefix("mixed_")
    found, moved = [], []
    for engine, device in ((Eager(), "cpu"), (gpu, "gpu")):
        with kerasish.device(device), using_engine(engine):
            layer = NORMS[name](dtype=dtype)
            layer.build(numbers.shape)
            x = ops.cast(kerasish.Tensor(numbers), kind)
            with engine.step_scope():
                _step(layer, x)  # variables move here, kernels are compiled
            fake_cupy.work.clear()
            with engine.step_scope():
                value, slopes = _step(layer, x)
            found.append([value / 1000, *kerasish.tree.flatten(slopes)])
            moved.append([v.numpy() for v in layer.variables])
    scale = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}[kind]
    for a, b in zip(*found):
        a, b = (ops.convert_to_numpy(v).astype("float32") for v in (a, b))
        np.testing.assert_allclose(a, b, rtol=0, atol=scale * max(1.0, np.abs(a).max()))
    for a, b in zip(*moved):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    work = fake_cupy.work
    kernels = [k for k in work.launches if k in signatures(source("norm"))]
    moving = sum(work.bytes[k] for k in kernels)
    per_element = moving / numbers.size
    width = 4 if kind == "float32" else 2
    # Read for moments, read, written; g and x read twice, dx written.
    assert per_element <= 8 * width + 4
    assert sum(work.launches[k] for k in kernels) == (6 if name == "batch" else 4)
    # Of 16-bit data nothing is cast but what the loss here asks for, and the gradient back.
    assert work.launches["astype"] <= (0 if kind == "float32" else 2)


def test_a_batch_s_moments_and_the_moving_ones_are_one_launch(gpu):
    x = np.random.default_rng(1).standard_normal((50, 6)).astype("float32") * 3 + 1
    found = []
    for engine, device in ((Eager(), "cpu"), (gpu, "gpu")):
        with kerasish.device(device), using_engine(engine):
            layer = layers.BatchNormalization(momentum=0.7)
            layer.build(x.shape)
            for _ in range(3):
                fake_cupy.work.clear()
                with engine.step_scope():
                    y = layer(kerasish.Tensor(x), training=True)
            found.append([y.numpy(), layer.moving_mean.numpy(), layer.moving_variance.numpy()])
    assert dict(fake_cupy.work.launches) == {"moment_parts": 1, "batch_totals": 1, "scale_shift": 1}
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
