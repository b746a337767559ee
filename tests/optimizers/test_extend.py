"""An optimizer that gets more variables after some steps treats the old ones as before."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import optimizers
from kerasish.optimizers import LossScaleOptimizer, MultiOptimizer

RULES = {
    name: lambda name=name: getattr(optimizers, name)()
    for name in (
        "SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Adafactor", "Nadam",
        "Ftrl", "Lion", "Lamb", "Muon", "ScheduleFreeAdamW",
    )
}  # fmt: skip
RULES["momentum, averages"] = lambda: optimizers.SGD(0.1, momentum=0.9, use_ema=True)
RULES["accumulation"] = lambda: optimizers.Adam(gradient_accumulation_steps=2)
RULES["loss scaling"] = lambda: LossScaleOptimizer(optimizers.Adam())


def _variables():
    rng = np.random.default_rng(0)
    return [
        kerasish.Variable(rng.normal(size=shape).astype("float32"), name=name)
        for name, shape in (("first", (3, 4)), ("second", (4,)), ("late", (3, 4)))
    ]


def _gradients(count, step):
    return [
        np.random.default_rng(step * 10 + i).normal(size=s).astype("float32")
        for i, s in enumerate([(3, 4), (4,), (3, 4)][:count])
    ]


@pytest.mark.parametrize("name", RULES)
def test_old_variables_go_on_as_if_nothing_had_come(name):
    """Steps 0 to 3 on two variables, then 4 to 7 on three: the two move as without the third."""
    rule, plain = RULES[name](), RULES[name]()
    ours, theirs = _variables(), _variables()
    for step in range(4):
        rule.apply(_gradients(2, step), ours[:2])
        plain.apply(_gradients(2, step), theirs[:2])
    before = {v.path: v.numpy() for v in rule.variables}
    rule.extend([ours[2], *ours[:2]])
    after = {v.path: v.numpy() for v in rule.variables}
    for path, value in before.items():
        np.testing.assert_array_equal(after[path], value, err_msg=path)
    assert rule.knows(ours) and len(rule.trainable_variables) == 3
    start = ours[2].numpy()
    for step in range(4, 8):
        first, second, late = _gradients(3, step)
        rule.apply([late, first, second], [ours[2], *ours[:2]])
        plain.apply([first, second], theirs[:2])
    for mine, other in zip(ours[:2], theirs[:2]):
        np.testing.assert_array_equal(mine.numpy(), other.numpy())
    assert not np.array_equal(ours[2].numpy(), start)


def test_several_optimizers():
    fast, slow = optimizers.SGD(0.5, momentum=0.9), optimizers.SGD(0.1)
    rule = MultiOptimizer(lambda v: fast if v.name != "second" else slow)
    ours = _variables()
    rule.apply(_gradients(2, 0), ours[:2])
    momentum = fast.variables[-1].numpy()
    rule.extend(ours)
    np.testing.assert_array_equal(fast.slots_of(ours[0])[0].numpy(), momentum)
    before = [v.numpy() for v in ours]
    rule.apply(_gradients(3, 1), ours)
    assert all(not np.array_equal(v.numpy(), b) for v, b in zip(ours, before))


def test_equal_paths_are_refused():
    ours = _variables()
    rule = optimizers.Adam()
    rule.build(ours[:1])
    twin = kerasish.Variable(np.zeros((3, 4), "float32"), name="first")
    with pytest.raises(ValueError, match="two variables are named 'first'"):
        rule.extend([ours[0], twin])
    assert rule.built and rule.knows(ours[:1])
