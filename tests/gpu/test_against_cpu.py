"""`pytest -m gpu`: every op, layer and optimizer on the GPU gives what it gives on the CPU.

New ones are found by themselves. `KERASISH_GPU=fake pytest -m gpu` runs the same on the
fake CuPy; the tests at the end, which need no GPU, do so for a few.
"""

from __future__ import annotations

import gpu_checks as checks
import numpy as np
import pytest
from layer_examples import EXAMPLES

import kerasish
from kerasish import optimizers
from kerasish.ops.op import REGISTRY
from kerasish.registry import BUILTINS

OPS = [
    pytest.param(op, example, id=f"{name}-{i}")
    for name, op in sorted(REGISTRY.items())
    for i, example in enumerate(op.examples)
]
_FRAMES = (
    optimizers.Optimizer, optimizers.LossScaleOptimizer, optimizers.MultiOptimizer,
    optimizers.OptimizerMap,
)  # fmt: skip
OPTIMIZERS = {
    cls.__name__: cls for cls in BUILTINS["keras.optimizers"].values() if cls not in _FRAMES
}
# Options that every optimizer has, each of which changes the update.
OPTIONS = [
    {}, {"weight_decay": 0.1}, {"clipnorm": 0.5}, {"clipvalue": 0.3}, {"global_clipnorm": 0.5},
    {"use_ema": True}, {"gradient_accumulation_steps": 2},
]  # fmt: skip


def _optimizer(name, options):
    return OPTIMIZERS[name](learning_rate=0.05, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize(("op", "example"), OPS)
def test_ops(gpu, op, example, dtype):
    checks.check_op(gpu, op, example, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [None, "mixed_bfloat16"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_layers(gpu, name, dtype):
    checks.check_layer(gpu, name, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(o) or "plain")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(gpu, name, options):
    checks.check_optimizer(gpu, lambda: _optimizer(name, options))


@pytest.mark.gpu
@pytest.mark.parametrize("name", checks.MODELS)
def test_losses_of_20_steps(gpu, name):
    checks.check_losses(gpu, name)


@pytest.mark.gpu
@pytest.mark.parametrize("name", checks.MODELS)
def test_the_same_bits_twice(gpu, name):
    checks.check_determinism(gpu, name)


@pytest.mark.gpu
@pytest.mark.parametrize("name", checks.MODELS)
def test_memory_stays_flat(gpu, name):
    checks.check_memory(gpu, name)


@pytest.mark.gpu
def test_transfers(gpu):
    checks.check_transfers(gpu)


@pytest.mark.gpu
def test_conformance(gpu, monkeypatch):
    monkeypatch.setattr(gpu, "name", "first-gpu")
    kerasish.backends.register("first-gpu", lambda: gpu)
    try:
        kerasish.testing.check_backend("first-gpu")
    finally:
        kerasish.backends.unregister("first-gpu")


# --- the checks themselves, on the fake: they pass, and they can fail -------------------------


@pytest.mark.slow
def test_every_layer_and_optimizer_on_the_fake_gpu(fake_gpu):
    for name in EXAMPLES:
        checks.check_layer(fake_gpu, name)
    for name in OPTIMIZERS:
        checks.check_optimizer(fake_gpu, lambda: _optimizer(name, {}))  # noqa: B023
    for name in checks.MODELS:
        checks.check_losses(fake_gpu, name)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_op_on_the_fake_gpu(fake_gpu, dtype):
    for case in OPS:
        checks.check_op(fake_gpu, *case.values, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["convolution", "matmul", "softplus", "lstm", "pool", "svd_full"])
def test_ops_on_the_fake_gpu(fake_gpu, name, dtype):
    found = [n for n in REGISTRY if n.startswith(name)]
    assert found
    for op in (REGISTRY[n] for n in found):
        checks.check_op(fake_gpu, op, op.examples[0], dtype)


@pytest.mark.parametrize("name", ["Dense", "Dropout", "LSTM", "LayerNormalization", "Conv2D"])
def test_layers_on_the_fake_gpu(fake_gpu, name):
    checks.check_layer(fake_gpu, name)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(o) or "plain")
def test_optimizers_on_the_fake_gpu(fake_gpu, options):
    checks.check_optimizer(fake_gpu, lambda: _optimizer("AdamW", options))


@pytest.mark.slow
def test_trainings_on_the_fake_gpu(fake_gpu):
    checks.check_losses(fake_gpu, "mlp")
    checks.check_determinism(fake_gpu, "images")
    checks.check_memory(fake_gpu, "mlp")
    checks.check_transfers(fake_gpu)


def test_a_wrong_kernel_is_noticed(fake_gpu, monkeypatch):
    monkeypatch.setitem(fake_gpu._overrides, "tanh", lambda x: x * 1.001)
    fake_gpu._kernels.clear()
    try:
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            checks.check_op(fake_gpu, REGISTRY["tanh"], ([(3, 4)], {}), "float32")
    finally:
        fake_gpu._kernels.clear()


def test_what_takes_more_and_more_memory_is_noticed(fake_gpu, monkeypatch):
    kept = []
    train = checks.train

    def leaking(*args, **kwargs):
        kept.append(kerasish.Tensor(np.ones(2000, "float32")).to("gpu"))
        return train(*args, **kwargs)

    monkeypatch.setattr(checks, "train", leaking)
    with pytest.raises(AssertionError):
        checks.check_memory(fake_gpu, "mlp")
