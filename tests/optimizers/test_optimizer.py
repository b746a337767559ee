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
    own, made = weights(), cls()
    for i in range(3):
        step(made, own, i + 1.0)
    store = {}
    made.save_own_variables(store)
    again, others = cls(learning_rate=0.5), [Variable(v.numpy(), name=v.name) for v in own]
    again.build(others)
    again.load_own_variables(store)
    step(made, own)
    step(again, others)
    for a, b in zip((*own, *made.variables), (*others, *again.variables)):
        assert np.array_equal(a.numpy(), b.numpy())


@every
def test_pickle_and_deepcopy_continue_alike(cls):
    own, made = weights(), cls()
    step(made, own)
    for again, others in (
        pickle.loads(pickle.dumps((made, own))),
        copy.deepcopy((made, own)),
    ):
        step(again, others)
    step(made, own)
    for a, b in zip(own, others):
        assert np.array_equal(a.numpy(), b.numpy())


@every
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_other_dtypes_stay(cls, dtype):
    options = {"epsilon": 1e-4} if hasattr(cls(), "epsilon") else {}
    own, made = weights(dtype), cls(learning_rate=0.1, **options)
    if cls is optimizers.Adafactor:
        made = cls(learning_rate=0.1, epsilon_1=1e-6)
    before = [v.numpy().astype("float64") for v in own]
    step(made, own)
    for v, old in zip(own, before):
        assert v.dtype == dtype and np.isfinite(v.numpy().astype("float64")).all()
        assert not np.array_equal(v.numpy().astype("float64"), old)


@every
def test_traced_step_is_the_eager_step(cls):
    own, made = weights(), cls()
    made.build(own)
    signals = {"loss": convert(1.0)} if made.needs_loss else {}
    pairs = dict(made.updates(gradients(), own, **signals))
    assert set(made.variables) | set(own) >= set(pairs)
    assert [v.numpy().tolist() for v in own] == [v.numpy().tolist() for v in weights()]
    traced = trace(lambda a, b: made.apply([a, b], own, **signals), *gradients())
    assert set(traced.updated) == set(pairs)


@pytest.mark.parametrize("cls", [c for c in CLASSES if not c.needs_loss], ids=lambda c: c.__name__)
def test_stateless_apply_changes_nothing(cls):
    own, made = weights(), cls()
    made.build(own)
    before = [v.numpy() for v in (*own, *made.variables)]
    new, state = made.stateless_apply(
        [v.value for v in made.variables], gradients(), [v.value for v in own]
    )
    for v, old in zip((*own, *made.variables), before):
        assert np.array_equal(v.numpy(), old)
    step(made, own)
    for v, value in zip((*own, *made.variables), (*new, *state)):
        assert np.allclose(v.numpy(), value.numpy(), rtol=1e-6)


def test_the_loss_falls():
    target = np.linspace(-1, 1, 5)
    for cls in CLASSES:
        w = Variable(np.zeros(5), dtype="float32")
        made = cls(learning_rate=0.05)
        losses = []
        for _ in range(40):
            miss = w.numpy() - target
            losses.append(float((miss**2).mean()))
            signals = {"loss": losses[-1]} if made.needs_loss else {}
            made.apply([2 * miss], [w], **signals)
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
    made = optimizers.get({"class_name": "SGD", "config": {"learning_rate": 0.5}})
    assert float(made.learning_rate) == 0.5
    assert optimizers.get(made) is made
    with pytest.raises(UnknownNameError, match="'adam"):
        optimizers.get("adamm")
    with pytest.raises(ValueError):
        optimizers.get(3)


def test_learning_rate():
    made = optimizers.SGD(0.5)
    made.learning_rate = 0.25
    assert float(made.learning_rate) == 0.25 and made.get_config()["learning_rate"] == 0.25
    made.learning_rate.assign(0.125)
    assert float(made.learning_rate) == 0.125
    with pytest.raises(ValueError, match=">= 0"):
        made.learning_rate = -1
    made.learning_rate = optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
    assert [v.name for v in made.variables] == ["iteration"]
    with pytest.raises(TypeError, match="schedule"):
        made.learning_rate = 0.5
    w = Variable([1.0])
    for expected in (0.5, 0.25, 0.125):
        made.apply([[1.0]], [w])
        assert float(w[0]) == expected
    assert float(optimizers.SGD(lambda: 0.5).learning_rate) == 0.5
    again = optimizers.deserialize(optimizers.serialize(made))
    assert again.get_config()["learning_rate"] == made.get_config()["learning_rate"]


def test_variables_and_their_paths():
    clear_session()
    own = weights()
    own[0].path = "dense/kernel"
    made = optimizers.Adam(use_ema=True, gradient_accumulation_steps=2)
    made.build(own)
    assert [v.path for v in made.variables][:4] == [
        "adam/iteration",
        "adam/learning_rate",
        "adam/dense_kernel_average",
        "adam/bias_average",
    ]
    assert [v.name for v in made.variables][4:] == [
        "dense_kernel_gradient_accumulator",
        "bias_gradient_accumulator",
        "dense_kernel_momentum",
        "dense_kernel_velocity",
        "bias_momentum",
        "bias_velocity",
    ]
    assert not any(v.trainable for v in made.variables)


# --- steps ----------------------------------------------------------------------------------------


def test_missing_gradients():
    own, made = weights(), optimizers.SGD(1.0)
    with pytest.warns(UserWarning, match="kernel"):
        made.apply([None, np.ones(3)], own)
    made.apply([None, np.ones(3)], own)  # warned once
    assert np.array_equal(own[0].numpy(), weights()[0].numpy())
    assert np.allclose(own[1].numpy(), weights()[1].numpy() - 2)
    with pytest.raises(ValueError, match="no gradient"):
        made.apply([None, None], own)


def test_wrong_gradients_and_variables():
    own, made = weights(), optimizers.SGD(1.0)
    with pytest.raises(ValueError, match="build"):
        made.apply(gradients())
    made.build(own)
    with pytest.raises(ValueError, match="1 gradients for 2"):
        made.apply(gradients()[:1])
    with pytest.raises(ShapeError, match="kernel"):
        made.apply([np.ones((3, 2)), np.ones(3)])
    with pytest.raises(ValueError, match="stranger"):
        made.apply([np.ones(3)], [Variable(np.ones(3), name="stranger")])
    assert int(made.iterations) == 0


def test_apply_gradients():
    own, made = weights(), optimizers.SGD(1.0)
    counter = made.apply_gradients(zip(gradients(), own))
    assert counter is made.iterations and int(counter) == 1
    assert np.allclose(own[0].numpy(), weights()[0].numpy() - 0.5)


def test_a_part_of_the_variables():
    own, made = weights(), optimizers.Adam(0.1)
    made.build(own)
    made.apply(gradients()[1:], own[1:])
    assert np.array_equal(own[0].numpy(), weights()[0].numpy())
    assert not np.array_equal(own[1].numpy(), weights()[1].numpy())


@every
def test_each_variable_has_slots_of_its_own(cls):
    """A variable goes the same way next to another one, with or without a gradient for that."""
    both = [Variable([1.0, -2.0], name="a"), Variable([0.5, 3.0], name="b")]
    alone = [Variable([0.5, 3.0], name="b")]
    made, other = cls(learning_rate=0.1), cls(learning_rate=0.1)
    made.build(both)
    other.build(alone)
    for i in range(4):
        own = np.asarray([0.3, -0.2 * i], "float32")
        grads = [np.asarray([5.0, 7.0], "float32"), own]
        signals = {"loss": 2.0} if made.needs_loss else {}
        made.apply(*((grads[1:], both[1:]) if i % 2 else (grads, both)), **signals)
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
        made = optimizers.Muon(0.1, rms_rate=rate, weight_decay=None)
        made.apply([g], own)
        steps.append(own[0].numpy())
    factor = 1.0 if rate else np.sqrt(shape[0] / shape[1])
    np.testing.assert_allclose(steps[0], steps[1].T * factor, rtol=1e-4, atol=1e-6)
    if rate:  # the singular values of a step are near 1 before it is scaled
        sizes = np.linalg.svd(steps[0], compute_uv=False) / (0.1 * rate * np.sqrt(max(shape)))
        assert (sizes > 0.5).all() and (sizes < 1.4).all()


def test_constraint_and_overwriting():
    own, made = weights(), optimizers.SGD(1.0)
    own[0].constraint = constraints.NonNeg()
    own[1].overwrite_with_gradient = True
    made.apply(gradients(), own)
    assert np.allclose(own[0].numpy(), np.maximum(weights()[0].numpy() - 0.5, 0))
    assert np.allclose(own[1].numpy(), gradients()[1])


def test_weight_decay_and_exclusion():
    own, made = weights(), optimizers.SGD(0.5, weight_decay=0.1)
    made.exclude_from_weight_decay(var_names=["bi.s"])
    zero = [np.zeros((2, 3)), np.zeros(3)]
    made.apply(zero, own)
    assert np.allclose(own[0].numpy(), weights()[0].numpy() * 0.95)
    assert np.array_equal(own[1].numpy(), weights()[1].numpy())
    made.exclude_from_weight_decay(var_list=[own[0]])
    before = own[0].numpy()
    made.apply(zero, own)
    assert np.array_equal(own[0].numpy(), before)
    with pytest.raises(ValueError, match="AdamW"):
        optimizers.AdamW(weight_decay=None)


@pytest.mark.parametrize("pattern", ["bias", "ia", "^b.*s$", "net/.*bias"])
def test_patterns_of_weight_decay_match_anywhere_in_name_or_path(pattern):
    with name_scope("net"):
        own, made = weights(), optimizers.SGD(0.5, weight_decay=0.1)
    made.exclude_from_weight_decay(var_names=[pattern])
    made.apply([np.zeros((2, 3)), np.zeros(3)], own)
    assert np.allclose(own[0].numpy(), weights()[0].numpy() * 0.95)
    assert np.array_equal(own[1].numpy(), weights()[1].numpy())


@every
def test_halves_step_as_far_as_float32(cls):
    """Coefficients near 1 (1 - 0.999) are not rounded away on the way to bfloat16."""
    own, halves = weights(), weights("bfloat16")
    for variables in (own, halves):
        made = cls(learning_rate=0.1)
        for _ in range(2):
            step(made, variables)
    for a, b, first in zip(own, halves, weights()):
        moved = np.abs(a.numpy() - first.numpy()).max()
        assert np.abs(a.numpy() - b.numpy().astype("float32")).max() <= 0.1 * moved + 0.02


def test_clipping_by_all_gradients_leaves_small_ones():
    own, made = weights(), optimizers.SGD(1.0, global_clipnorm=100.0)
    made.apply(gradients(), own)
    assert np.allclose(own[0].numpy(), weights()[0].numpy() - 0.5)


def test_scale_loss():
    assert float(optimizers.SGD(loss_scale_factor=4.0).scale_loss(2.0)) == 8
    assert optimizers.SGD().scale_loss(2.0) == 2.0


# --- saving ---------------------------------------------------------------------------------------


def test_loading_another_number_of_variables_warns_and_changes_nothing():
    made = optimizers.Adam()
    made.build(weights())
    with pytest.warns(UserWarning, match="stays as it is"):
        made.load_own_variables({"0": np.array(5)})
    assert int(made.iterations) == 0


def test_wrong_shapes_change_nothing():
    own, made = weights(), optimizers.Adam()
    made.build(own)
    arrays = [v.numpy() + 1 for v in made.variables]
    with pytest.raises(ShapeError, match="Nothing was changed"):
        made.set_weights([*arrays[:-1], np.ones(7)])
    assert int(made.iterations) == 0
    made.set_weights(arrays)
    assert int(made.iterations) == 1
    with pytest.raises(ValueError, match="arrays expected"):
        made.set_weights(arrays[1:])


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
    own, made = weights(), Heavy(0.1, weight_decay=0.5, gradient_accumulation_steps=2)
    others = weights()
    same = optimizers.SGD(0.1, 0.9, weight_decay=0.5, gradient_accumulation_steps=2)
    made.build(own)
    pairs = made.updates(gradients(), own)
    assert made.speeds[0].numpy().any() == False and len(pairs) == 7  # noqa: E712
    for i in range(5):
        step(made, own, i)
        step(same, others, i)
    for a, b in zip(own, others):
        assert np.allclose(a.numpy(), b.numpy(), rtol=1e-5)
    assert len(trace(lambda a, b: made.apply([a, b], own), *gradients()).updated) == 7


def test_update_step_of_ours_may_be_called():
    own, made = weights(), optimizers.SGD(0.1)
    made.build(own)
    made.update_step(gradients()[1], own[1], 0.5)
    assert np.allclose(own[1].numpy(), weights()[1].numpy() - 0.5 * gradients()[1])


def test_names_count_up():
    clear_session()
    made = [optimizers.Adam(), optimizers.AdamW(), optimizers.Adam(), optimizers.Adam(name="mine")]
    assert [one.name for one in made] == ["adam", "adam_w", "adam_1", "mine"]
    assert optimizers.deserialize(optimizers.serialize(made[2])).name == "adam_1"


def test_none_is_no_optimizer():
    assert optimizers.get(None) is None


def test_overwriting_gradients_are_gathered_by_their_largest():
    made = optimizers.SGD(1.0, gradient_accumulation_steps=2)
    range_, w = Variable([1.0, 1.0]), Variable([1.0, 1.0])
    range_.overwrite_with_gradient = True
    made.apply([[3.0, 5.0], [2.0, 2.0]], [range_, w])
    assert range_.numpy().tolist() == w.numpy().tolist() == [1.0, 1.0]
    made.apply([[4.0, 2.0], [0.0, 4.0]], [range_, w])
    assert range_.numpy().tolist() == [4.0, 5.0]
    assert w.numpy().tolist() == [0.0, -2.0]
    for _ in range(2):
        made.apply([[1.0, 1.0], [0.0, 0.0]], [range_, w])
    assert range_.numpy().tolist() == [1.0, 1.0]


@pytest.mark.parametrize("relative_step", [True, False])
def test_adafactor_never_steps_wider_than_the_root_of_its_count_allows(relative_step):
    made, w = optimizers.Adafactor(0.8, relative_step=relative_step), Variable([1.0, 1.0])
    sizes = []
    for _ in range(3):
        before = w.numpy()
        made.apply([[0.1, 0.1]], [w])
        sizes.append((1 - w.numpy() / before)[0])
    np.testing.assert_allclose(sizes, [0.8, 2**-0.5, 3**-0.5], rtol=1e-5)


def test_muon_decays_what_takes_adams_steps_by_its_own_number():
    bias, kernel = Variable([1.0], name="bias"), Variable([[1.0]], name="kernel")
    muon = optimizers.Muon(0.1, weight_decay=None, adam_weight_decay=0.5)
    muon.apply([[0.0], [[0.0]]], [bias, kernel])
    assert float(bias[0]) == pytest.approx(0.95)
    assert float(kernel[0, 0]) == 1.0
