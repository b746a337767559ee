"""TorchModuleWrapper, JaxLayer and FlaxLayer against PyTorch, JAX and Flax themselves."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import layers, ops

X = np.random.default_rng(0).normal(size=(24, 5)).astype("float32")
Y = np.random.default_rng(1).normal(size=(24, 2)).astype("float32")


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed: extra bench")


@pytest.fixture
def jax():
    return pytest.importorskip("jax", reason="JAX is not installed: extra bench")


@pytest.fixture
def linen(jax):
    return pytest.importorskip("flax.linen", reason="Flax is not installed: pip install flax")


def torch_net(torch, dropout=0.0):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(5, 8),
        torch.nn.BatchNorm1d(8),
        torch.nn.ReLU(inplace=True),
        torch.nn.Dropout(dropout),
        torch.nn.Linear(8, 2),
    )


def compiled(layer):
    inputs = kerasish.Input((5,))
    model = kerasish.Model(inputs, layer(inputs))
    model.compile(kerasish.optimizers.SGD(0.1), "mse")
    return model


def test_training_a_torch_module_equals_torch(torch, engine):
    net = torch_net(torch)
    model = compiled(layers.TorchModuleWrapper(net))
    own = torch_net(torch)
    optimizer = torch.optim.SGD(own.parameters(), 0.1)
    for start in range(0, 24, 8):
        x, y = X[start : start + 8], Y[start : start + 8]
        loss = ((own(torch.tensor(x)) - torch.tensor(y)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert model.train_on_batch(x, y) == pytest.approx(loss.item(), rel=1e-4)
    state = model.layers[-1].module.state_dict()
    for name, value in own.state_dict().items():
        np.testing.assert_allclose(state[name].numpy(), value.numpy(), rtol=2e-4, atol=1e-6)
    own.eval()
    np.testing.assert_allclose(
        model.predict(X, verbose=0), own(torch.tensor(X)).detach().numpy(), rtol=1e-3, atol=1e-5
    )


def test_dropout_of_torch_repeats_by_the_seed(torch):
    histories = []
    for name in ("eager", "static", "static"):
        kerasish.config.set_backend(name)
        kerasish.utils.set_random_seed(3)
        model = compiled(layers.TorchModuleWrapper(torch_net(torch, dropout=0.5)))
        torch.rand(len(histories) + 1)  # torch's own state does not matter, nor is it changed
        before = torch.get_rng_state()
        fit = model.fit(X, Y, batch_size=8, epochs=3, verbose=0)
        assert torch.equal(before, torch.get_rng_state())
        histories.append(fit.history["loss"])
    assert histories[0] == pytest.approx(histories[1], rel=1e-5)
    assert histories[1] == histories[2]


def test_weights_of_a_torch_module_in_files(torch, tmp_path):
    model = compiled(layers.TorchModuleWrapper(torch_net(torch), name="net"))
    model.fit(X, Y, verbose=0)
    model.save_weights(tmp_path / "w.weights.h5")
    torch.manual_seed(9)
    other = compiled(layers.TorchModuleWrapper(torch_net(torch), name="net"))
    other.load_weights(tmp_path / "w.weights.h5")
    np.testing.assert_array_equal(model.predict(X, verbose=0), other.predict(X, verbose=0))
    model.save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match="runs no code from files"):
        kerasish.saving.load_model(tmp_path / "m.keras")
    wrong = compiled(layers.TorchModuleWrapper(torch.nn.Linear(5, 2), name="net"))
    with pytest.raises(ValueError):
        wrong.load_weights(tmp_path / "w.weights.h5")


def test_structures_frozen_parameters_and_half(torch, engine):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 4), torch.nn.Linear(3, 4)
            self.b.requires_grad_(False)

        def forward(self, pair, *, scale):
            x, y = pair
            return {"sum": (self.a(x) + self.b(y)) * scale, "first": x[:, 0].long()}

    layer = layers.TorchModuleWrapper(Net())
    assert (len(layer.trainable_variables), len(layer.non_trainable_variables)) == (2, 2)
    x = np.ones((2, 3), "float32")
    result = layer((x, x), scale=2.0)
    assert result["sum"].shape == (2, 4) and result["first"].dtype == "int64"
    spec = layer((kerasish.Input((3,)), kerasish.Input((3,))), scale=2.0)
    assert spec["sum"].shape == (None, 4)
    half = layers.TorchModuleWrapper(torch.nn.Linear(3, 2), dtype="mixed_bfloat16")
    assert half(x).dtype == "bfloat16" and half.variables[0].dtype == "float32"


def test_what_torch_cannot_run_without_numbers(torch, engine):
    class Sorted(torch.nn.Module):
        def forward(self, x):
            return x[x[:, 0].argsort()] if float(x.sum()) > 0 else x

    with pytest.raises(ValueError, match="Give output_shape"):
        compiled(layers.TorchModuleWrapper(Sorted()))
    layer = layers.TorchModuleWrapper(Sorted(), output_shape=(None, 5))
    assert compiled(layer).predict(np.abs(X), verbose=0)[:, 0].tolist() == sorted(np.abs(X[:, 0]))
    with pytest.raises(ValueError, match=r"expected a torch\.nn\.Module, got function"):
        layers.TorchModuleWrapper(lambda x: x)
    with pytest.raises(ValueError, match="is lazy and has no parameters yet"):
        layers.TorchModuleWrapper(torch.nn.LazyLinear(2))


def affine(params, state, rng, inputs, training):
    import jax

    x = inputs @ params["w"] + params["b"]
    if training:
        x = x * (1 + 0.0 * jax.random.uniform(rng, x.shape))
        state = {"count": state["count"] + 1, "mean": 0.5 * state["mean"] + 0.5 * x.mean(0)}
    return x, state


def first(rng, inputs):
    import jax

    w = jax.random.normal(rng, (inputs.shape[-1], 2))
    return {"w": w, "b": np.zeros(2, "float32")}, {"count": 0, "mean": np.zeros(2, "float32")}


def test_training_a_function_of_jax_equals_jax(jax, engine):
    layer = layers.JaxLayer(affine, first, seed=5)
    model = compiled(layer)
    params = jax.tree_util.tree_map(lambda v: v.numpy(), layer.params)

    def loss(params, x, y):
        return ((x @ params["w"] + params["b"] - y) ** 2).mean()

    for start in range(0, 24, 8):
        x, y = X[start : start + 8], Y[start : start + 8]
        value, grads = jax.value_and_grad(loss)(params, x, y)
        assert model.train_on_batch(x, y) == pytest.approx(float(value), rel=1e-5)
        params = jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, params, grads)
    np.testing.assert_allclose(layer.params["w"].numpy(), params["w"], rtol=1e-4)
    assert int(layer.state["count"].numpy()) == 3 and layer.state["mean"].numpy().any()
    history = model.fit(X, Y, epochs=3, verbose=0).history["loss"]
    assert history[2] < history[0]
    assert model.predict(X, verbose=0).shape == (24, 2)


def test_a_jax_layer_in_a_file(jax, tmp_path):
    model = compiled(layers.JaxLayer(affine, first))
    model.save(tmp_path / "m.keras")
    known = {"affine": affine, "first": first}
    again = kerasish.saving.load_model(tmp_path / "m.keras", custom_objects=known)
    np.testing.assert_array_equal(model.predict(X, verbose=0), again.predict(X, verbose=0))
    with pytest.raises(ValueError, match="affine"):
        kerasish.saving.load_model(tmp_path / "m.keras")


def test_arguments_of_a_jax_layer(jax):
    with pytest.raises(ValueError, match="it has to take 'inputs'"):
        layers.JaxLayer(lambda params, x: x, params={})
    with pytest.raises(ValueError, match="give them, or an init_fn"):
        layers.JaxLayer(lambda params, inputs: inputs)
    double = layers.JaxLayer(lambda inputs: {"y": inputs * 2})
    assert double(ops.ones((2, 3)))["y"].tolist() == [[2.0] * 3] * 2


def test_training_a_module_of_flax(linen, engine):
    class Net(linen.Module):
        @linen.compact
        def __call__(self, inputs, training):
            x = linen.Dense(16)(inputs)
            x = linen.BatchNorm(use_running_average=not training)(x)
            x = linen.Dropout(0.2, deterministic=not training)(linen.relu(x))
            return linen.Dense(2)(x)

    kerasish.utils.set_random_seed(1)
    layer = layers.FlaxLayer(Net())
    model = compiled(layer)
    assert (len(layer.trainable_variables), len(layer.non_trainable_variables)) == (6, 3)
    history = model.fit(X, Y, batch_size=8, epochs=8, verbose=0).history["loss"]
    assert history[-1] < history[0]
    variables = {**values(layer.params), **values(layer.state)}
    np.testing.assert_allclose(
        Net().apply(variables, X, training=False), model.predict(X, verbose=0), rtol=1e-4, atol=1e-5
    )


def values(variables):
    return {k: values(v) if isinstance(v, dict) else v.numpy() for k, v in dict(variables).items()}
