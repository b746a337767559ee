"""The optimizers' frame: arguments, variables, steps, saving, copies, own optimizers."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from kerasish import constraints, ops, optimizers
from kerasish.errors import ShapeError, UnknownNameError
from kerasish.graph.trace import trace
from kerasish.registry import BUILTINS
from kerasish.scopes import name_scope
from kerasish.tensor import Variable, convert
from kerasish.utils import clear_session

BASES = (optimizers.Optimizer, optimizers.LossScaleOptimizer, optimizers.MultiOptimizer)
CLASSES = sorted(
    {
        c
        for c in BUILTINS["keras.optimizers"].values()
        if c not in (*BASES, optimizers.OptimizerMap)
    },
    key=lambda c: c.__name__,
)
every = pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)


def weights(dtype="float32"):
    return [
        Variable(np.linspace(-1, 1, 6).reshape(2, 3), dtype=dtype, name="kernel"),
        Variable(np.linspace(0.5, 1, 3), dtype=dtype, name="bias"),
    ]


def gradients(scale=1.0):
    return [
        np.full((2, 3), 0.5 * scale, "float32"),
        np.array([0.1, -0.2, 0.3], "float32") * scale,
    ]


def step(made, own, scale=1.0):
    signals = {"loss": 2.0 * scale} if made.needs_loss else {}
    made.apply(gradients(scale), own, **signals)


@every
def test_saved_variables_continue_alike(cls):
    own, created = weights(), cls()
    for i in range(3):
        step(created, own, i + 1.0)
    store = {}
    created.save_own_variables(store)
    again, others = cls(learning_rate=0.5), [Variable(v.numpy(), name=v.name) for v in own]
    again.build(others)
    again.load_own_variables(store)
    step(created, own)
    step(again, others)
    for a, b in zip((*own, *created.variables), (*others, *again.variables)):
        assert np.array_equal(a.numpy(), b.numpy())


@every
def test_pickle_and_deepcopy_continue_alike(cls):
    own, created = weights(), cls()
    step(created, own)
    for again, others in (
        pickle.loads(pickle.dumps((created, own))),
        copy.deepcopy((created, own)),
    ):
        step(again, others)
    step(created, own)
    for a, b in zip(own, others):
        assert np.array_equal(a.numpy(), b.numpy())


@every
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_other_dtypes_stay(cls, dtype):
    options = {"epsilon": 1e-4} if hasattr(cls(), "epsilon") else {}
    own, created = weights(dtype), cls(learning_rate=0.1, **options)
    if cls is optimizers.Adafactor:
        created = cls(learning_rate=0.1, epsilon_1=1e-6)
    before = [v.numpy().astype("float64") for v in own]
    step(created, own)
    for v, old in zip(own, before):
        assert v.dtype == dtype and np.isfinite(v.numpy().astype("float64")).all()
        assert not np.array_equal(v.numpy().astype("float64"), old)


@every
def test_traced_step_is_the_eager_step(cls):
    own, created = weights(), cls()
    created.build(own)
    signals = {"loss": convert(1.0)} if created.needs_loss else {}
    pairs = dict(created.updates(gradients(), own, **signals))
    assert set(created.variables) | set(own) >= set(pairs)
    assert [v.numpy().tolist() for v in own] == [v.numpy().tolist() for v in weights()]
    traced = trace(lambda a, b: created.apply([a, b], own, **signals), *gradients())
    assert set(traced.updated) == set(pairs)


@pytest.mark.parametrize("cls", [c for c in CLASSES if not c.needs_loss], ids=lambda c: c.__name__)
def test_stateless_apply_changes_nothing(cls):
    own, created = weights(), cls()
    created.build(own)
    before = [v.numpy() for v in (*own, *created.variables)]
    new, state = created.stateless_apply(
        [v.value for v in created.variables], gradients(), [v.value for v in own]
    )
    for v, old in zip((*own, *created.variables), before):
        assert np.array_equal(v.numpy(), old)
    step(created, own)
    for v, value in zip((*own, *created.variables), (*new, *state)):
        assert np.allclose(v.numpy(), value.numpy(), rtol=1e-6)


def test_the_loss_falls():
    target = np.linspace(-1, 1, 5)
    for cls in CLASSES:
        w = Variable(np.zeros(5), dtype="float32")
        created = cls(learning_rate=0.05)
        losses = []
        for _ in range(40):
            miss = w.numpy() - target
            losses.append(float((miss**2).mean()))
            signals = {"loss": losses[-1]} if created.needs_loss else {}
            created.apply([2 * miss], [w], **signals)
        assert losses[-1] < losses[0], cls.__name__


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"clipnorm": 1.0, "clipvalue": 1.0},
        {"clipnorm": 0.0},
        {"use_ema": True, "ema_momentum": 2.0},
        {"use_ema": True, "ema_overwrite_frequency": 0},
        {"gradient_accumulation_steps": 1},
        {"learning_rate": -1.0},
        {"learning_rate": "fast"},
        {"decays": 1},
    ],
)
def test_wrong_arguments(options):
    with pytest.raises(ValueError, match="Adam"):
        optimizers.Adam(**options)


def test_get():
    assert isinstance(optimizers.get("adam"), optimizers.Adam)
    assert isinstance(optimizers.get("AdamW"), optimizers.AdamW)
    assert isinstance(optimizers.get("RMSProp"), optimizers.RMSprop)
    assert isinstance(optimizers.get(optimizers.SGD), optimizers.SGD)
    created = optimizers.get({"class_name": "SGD", "config": {"learning_rate": 0.5}})
    assert float(created.learning_rate) == 0.5
    assert optimizers.get(created) is created
    with pytest.raises(UnknownNameError, match="'adam"):
        optimizers.get("adamm")
    with pytest.raises(ValueError):
        optimizers.get(3)


def test_learning_rate():
    created = optimizers.SGD(0.5)
    created.learning_rate = 0.25
    assert float(created.learning_rate) == 0.25 and created.get_config()["learning_rate"] == 0.25
    created.learning_rate.assign(0.125)
    assert float(created.learning_rate) == 0.125
    with pytest.raises(ValueError, match=">= 0"):
        created.learning_rate = -1
    created.learning_rate = optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
    assert [v.name for v in created.variables] == ["iteration"]
    with pytest.raises(TypeError, match="schedule"):
        created.learning_rate = 0.5
    w = Variable([1.0])
    for expected in (0.5, 0.25, 0.125):
        created.apply([[1.0]], [w])
        assert float(w[0]) == expected
    assert float(optimizers.SGD(lambda: 0.5).learning_rate) == 0.5
    again = optimizers.deserialize(optimizers.serialize(created))
    assert again.get_config()["learning_rate"] == created.get_config()["learning_rate"]


def test_variables_and_their_paths():
    clear_session()
    own = weights()
    own[0].path = "dense/kernel"
    created = optimizers.Adam(use_ema=True, gradient_accumulation_steps=2)
    created.build(own)
    assert [v.path for v in created.variables][:4] == [
        "adam/iteration",
        "adam/learning_rate",
        "adam/dense_kernel_average",
        "adam/bias_average",
    ]
    assert [v.name for v in created.variables][4:] == [
        "dense_kernel_gradient_accumulator",
        "bias_gradient_accumulator",
        "dense_kernel_momentum",
        "dense_kernel_velocity",
        "bias_momentum",
        "bias_velocity",
    ]
    assert not any(v.trainable for v in created.variables)


# --- steps ----------------------------------------------------------------------------------------


def test_missing_gradients():
    own, created = weights(), optimizers.SGD(1.0)
    with pytest.warns(UserWarning, match="kernel"):
        created.apply([None, np.ones(3)], own)
    created.apply([None, np.ones(3)], own)  # warned once
    assert np.array_equal(own[0].numpy(), weights()[0].numpy())
    assert np.allclose(own[1].numpy(), weights()[1].numpy() - 2)
    with pytest.raises(ValueError, match="no gradient"):
        created.apply([None, None], own)


def test_wrong_gradients_and_variables():
    own, created = weights(), optimizers.SGD(1.0)
    with pytest.raises(ValueError, match="build"):
        created.apply(gradients())
    created.build(own)
    with pytest.raises(ValueError, match="1 gradients for 2"):
        created.apply(gradients()[:1])
    with pytest.raises(ShapeError, match="kernel"):
        created.apply([np.ones((3, 2)), np.ones(3)])
    with pytest.raises(ValueError, match="stranger"):
        created.apply([np.ones(3)], [Variable(np.ones(3), name="stranger")])
    assert int(created.iterations) == 0


def test_apply_gradients():
    own, created = weights(), optimizers.SGD(1.0)
    counter = created.apply_gradients(zip(gradients(), own))
    assert counter is created.iterations and int(counter) == 1
    assert np.allclose(own[0].numpy(), weights()[0].numpy() - 0.5)


def test_a_part_of_the_variables():
    own, created = weights(), optimizers.Adam(0.1)
    created.build(own)
    created.apply(gradients()[1:], own[1:])
    assert np.array_equal(own[0].numpy(), weights()[0].numpy())
    assert not np.array_equal(own[1].numpy(), weights()[1].numpy())


@every
def test_each_variable_has_slots_of_its_own(cls):
    """A variable goes the same way next to another one, with or without a gradient for that."""
    both = [Variable([1.0, -2.0], name="a"), Variable([0.5, 3.0], name="b")]
    alone = [Variable([0.5, 3.0], name="b")]
    created, other = cls(learning_rate=0.1), cls(learning_rate=0.1)
    created.build(both)
    other.build(alone)
    for i in range(4):
        own = np.asarray([0.3, -0.2 * i], "float32")
        grads = [np.asarray([5.0, 7.0], "float32"), own]
        signals = {"loss": 2.0} if created.needs_loss else {}
        created.apply(*((grads[1:], both[1:]) if i % 2 else (grads, both)), **signals)
        other.apply([own], alone, **signals)
    assert np.allclose(both[1].numpy(), alone[0].numpy(), rtol=1e-6)


@pytest.mark.parametrize("shape", [(5, 2), (3, 3)])
@pytest.mark.parametrize("rate", [0.2, None])
def test_muon_steps_a_matrix_and_its_transpose_alike(shape, rate):
    """Scaled to a root mean square both step alike; else tall ones by sqrt(rows / columns)."""
    gradient = np.random.default_rng(1).normal(size=shape).astype("float32")
    steps = []
    for g in (gradient, gradient.T):
        own = [Variable(np.zeros(g.shape), name="kernel")]
        created = optimizers.Muon(0.1, rms_rate=rate, weight_decay=None)
        created.apply([g], own)
        steps.append(own[0].numpy())
    factor = 1.0 if rate else np.sqrt(shape[0] / shape[1])
    np.testing.assert_allclose(steps[0], steps[1].T * factor, rtol=1e-4, atol=1e-6)
    if rate:  # the singular values of a step are near 1 before it is scaled
        sizes = np.linalg.svd(steps[0], compute_uv=False) / (0.1 * rate * np.sqrt(max(shape)))
        assert (sizes > 0.5).all() and (sizes < 1.4).all()


def test_constraint_and_overwriting():
    own, created = weights(), optimizers.SGD(1.0)
    own[0].constraint = constraints.NonNeg()
    own[1].overwrite_with_gradient = True
    created.apply(gradients(), own)
    assert np.allclose(own[0].numpy(), np.maximum(weights()[0].numpy() - 0.5, 0))
    assert np.allclose(own[1].numpy(), gradients()[1])


def test_weight_decay_and_exclusion():
    own, created = weights(), optimizers.SGD(0.5, weight_decay=0.1)
    created.exclude_from_weight_decay(var_names=["bi.s"])
    zero = [np.zeros((2, 3)), np.zeros(3)]
    created.apply(zero, own)
    assert np.allclose(own[0].numpy(), weights()[0].numpy() * 0.95)
    assert np.array_equal(own[1].numpy(), weights()[1].numpy())
    created.exclude_from_weight_decay(var_list=[own[0]])
    before = own[0].numpy()
    created.apply(zero, own)
    assert np.array_equal(own[0].numpy(), before)
    with pytest.raises(ValueError, match="AdamW"):
        optimizers.AdamW(weight_decay=None)


@pytest.mark.parametrize("pattern", ["bias", "ia", "^b.*s$", "net/.*bias"])
def test_patterns_of_weight_decay_match_anywhere_in_name_or_path(pattern):
    with name_scope("net"):
        own, created = weights(), optimizers.SGD(0.5, weight_decay=0.1)
    created.exclude_from_weight_decay(var_names=[pattern])
    created.apply([np.zeros((2, 3)), np.zeros(3)], own)
    assert np.allclose(own[0].numpy(), weights()[0].numpy() * 0.95)
    assert np.array_equal(own[1].numpy(), weights()[1].numpy())


@every
def test_halves_step_as_far_as_float32(cls):
    """Coefficients near 1 (1 - 0.999) are not rounded away on the way to bfloat16."""
    own, halves = weights(), weights("bfloat16")
    for variables in (own, halves):
        created = cls(learning_rate=0.1)
        for _ in range(2):
            step(created, variables)
    for a, b, first in zip(own, halves, weights()):
        moved = np.abs(a.numpy() - first.numpy()).max()
        assert np.abs(a.numpy() - b.numpy().astype("float32")).max() <= 0.1 * moved + 0.02


def test_clipping_by_all_gradients_leaves_small_ones():
    own, created = weights(), optimizers.SGD(1.0, global_clipnorm=100.0)
    created.apply(gradients(), own)
    assert np.allclose(own[0].numpy(), weights()[0].numpy() - 0.5)


def test_scale_loss():
    assert float(optimizers.SGD(loss_scale_factor=4.0).scale_loss(2.0)) == 8
    assert optimizers.SGD().scale_loss(2.0) == 2.0


# --- saving ---------------------------------------------------------------------------------------


def test_loading_another_number_of_variables_warns_and_changes_nothing():
    created = optimizers.Adam()
    created.build(weights())
    with pytest.warns(UserWarning, match="stays as it is"):
        created.load_own_variables({"0": np.array(5)})
    assert int(created.iterations) == 0


def test_wrong_shapes_change_nothing():
    own, created = weights(), optimizers.Adam()
    created.build(own)
    arrays = [v.numpy() + 1 for v in created.variables]
    with pytest.raises(ShapeError, match="Nothing was changed"):
        created.set_weights([*arrays[:-1], np.ones(7)])
    assert int(created.iterations) == 0
    created.set_weights(arrays)
    assert int(created.iterations) == 1
    with pytest.raises(ValueError, match="arrays expected"):
        created.set_weights(arrays[1:])


# --- optimizers written by users ------------------------------------------------------------------


class Heavy(optimizers.Optimizer):
    """Momentum, written as Keras's documentation shows it."""

    def __init__(self, learning_rate=0.1, **kwargs):
        super().__init__(learning_rate, **kwargs)

    def build(self, variables):
        super().build(variables)
        self.speeds = [self.add_variable_from_reference(v, "speed") for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        speed = self.speeds[self._get_variable_index(variable)]
        self.assign(speed, ops.subtract(ops.multiply(speed, 0.9), gradient * learning_rate))
        self.assign_add(variable, speed)


def test_update_step_in_keras_way():
    own, created = weights(), Heavy(0.1, weight_decay=0.5, gradient_accumulation_steps=2)
    others = weights()
    same = optimizers.SGD(0.1, 0.9, weight_decay=0.5, gradient_accumulation_steps=2)
    created.build(own)
    pairs = created.updates(gradients(), own)
    assert created.speeds[0].numpy().any() == False and len(pairs) == 7  # noqa: E712
    for i in range(5):
        step(created, own, i)
        step(same, others, i)
    for a, b in zip(own, others):
        assert np.allclose(a.numpy(), b.numpy(), rtol=1e-5)
    assert len(trace(lambda a, b: created.apply([a, b], own), *gradients()).updated) == 7


def test_update_step_of_ours_may_be_called():
    own, created = weights(), optimizers.SGD(0.1)
    created.build(own)
    created.update_step(gradients()[1], own[1], 0.5)
    assert np.allclose(own[1].numpy(), weights()[1].numpy() - 0.5 * gradients()[1])


def test_names_count_up():
    clear_session()
    created = [
        optimizers.Adam(),
        optimizers.AdamW(),
        optimizers.Adam(),
        optimizers.Adam(name="mine"),
    ]
    assert [one.name for one in created] == ["adam", "adam_w", "adam_1", "mine"]
    assert optimizers.deserialize(optimizers.serialize(created[2])).name == "adam_1"


def test_none_is_no_optimizer():
    assert optimizers.get(None) is None


def test_overwriting_gradients_are_gathered_by_their_largest():
    created = optimizers.SGD(1.0, gradient_accumulation_steps=2)
    range_, w = Variable([1.0, 1.0]), Variable([1.0, 1.0])
    range_.overwrite_with_gradient = True
    created.apply([[3.0, 5.0], [2.0, 2.0]], [range_, w])
    assert range_.numpy().tolist() == w.numpy().tolist() == [1.0, 1.0]
    created.apply([[4.0, 2.0], [0.0, 4.0]], [range_, w])
    assert range_.numpy().tolist() == [4.0, 5.0]
    assert w.numpy().tolist() == [0.0, -2.0]
    for _ in range(2):
        created.apply([[1.0, 1.0], [0.0, 0.0]], [range_, w])
    assert range_.numpy().tolist() == [1.0, 1.0]


@pytest.mark.parametrize("relative_step", [True, False])
def test_adafactor_never_steps_wider_than_the_root_of_its_count_allows(relative_step):
    created, w = optimizers.Adafactor(0.8, relative_step=relative_step), Variable([1.0, 1.0])
    sizes = []
    for _ in range(3):
        before = w.numpy()
        created.apply([[0.1, 0.1]], [w])
        sizes.append((1 - w.numpy() / before)[0])
    np.testing.assert_allclose(sizes, [0.8, 2**-0.5, 3**-0.5], rtol=1e-5)


def test_muon_decays_what_takes_adams_steps_by_its_own_number():
    bias, kernel = Variable([1.0], name="bias"), Variable([[1.0]], name="kernel")
    muon = optimizers.Muon(0.1, weight_decay=None, adam_weight_decay=0.5)
    muon.apply([[0.0], [[0.0]]], [bias, kernel])
    assert float(bias[0]) == pytest.approx(0.95)
    assert float(kernel[0, 0]) == 1.0
