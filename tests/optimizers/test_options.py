"""The arguments of all optimizers: shown, taken by name and by position, checked."""

import copy
import inspect
import pickle
import pydoc
import typing

import numpy as np
import pytest
from package_values import package_values

from kerasish import Variable, optimizers
from kerasish.optimizers.options import DEFAULTS, Options, OptionsWithoutDecay, with_options

NAMES = list(DEFAULTS)
KINDS = [
    c
    for c in package_values(optimizers).values()
    if isinstance(c, type)
    and issubclass(c, optimizers.Optimizer)
    and c not in (optimizers.LossScaleOptimizer, optimizers.MultiOptimizer)
]


def test_names_types_and_defaults_agree():
    base = inspect.signature(optimizers.Optimizer.__init__).parameters
    assert [n for n in base if n in NAMES] == NAMES
    assert {n: base[n].default for n in NAMES} == DEFAULTS
    types = {**Options.__annotations__, **OptionsWithoutDecay.__annotations__}
    assert set(types) == set(NAMES)
    for name, annotation in types.items():
        assert annotation.__forward_arg__ == base[name].annotation


@pytest.mark.parametrize("kind", KINDS, ids=lambda c: c.__name__)
def test_signature_and_help_show_every_argument(kind):
    parameters = inspect.signature(kind).parameters
    assert set(NAMES) <= set(parameters)
    own = {n: p for n, p in parameters.items() if n not in NAMES and n != "kwargs"}
    assert next(iter(own)) == "learning_rate"
    shown = pydoc.render_doc(kind, renderer=pydoc.plaintext)
    for name, parameter in parameters.items():
        assert parameter.annotation is not parameter.empty, name
        assert f"{name}: " in shown, name
    assert "options" not in parameters


@pytest.mark.parametrize("kind", KINDS, ids=lambda c: c.__name__)
def test_arguments_by_position_are_those_by_name(kind):
    values = {
        "learning_rate": 0.25, "weight_decay": 0.125, "clipnorm": None, "clipvalue": 3.0,
        "global_clipnorm": None, "use_ema": True, "ema_momentum": 0.5,
        "ema_overwrite_frequency": 3, "loss_scale_factor": 2.0, "gradient_accumulation_steps": 4,
        "name": "mine",
    }  # fmt: skip
    parameters = [p for n, p in inspect.signature(kind).parameters.items() if n != "kwargs"]
    given = [values.get(p.name, p.default) for p in parameters]
    created = kind(*given)
    for name, value in values.items():
        assert getattr(created, name) == value if name != "learning_rate" else True
    assert float(created.learning_rate) == 0.25
    by_name = kind(**{p.name: value for p, value in zip(parameters, given, strict=True)})
    assert created.get_config() == by_name.get_config()


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="clipnorm is given twice"):
        optimizers.SGD(0.1, 0.0, False, None, 1.0, clipnorm=2.0)
    with pytest.raises(TypeError, match="SGD takes 13 arguments by position at most, got 14"):
        optimizers.SGD(*[None] * 14)
    with pytest.raises(ValueError, match="unexpected argument 'clip_norm'"):
        optimizers.Adam(clip_norm=1.0)
    with pytest.raises(ValueError, match="Its name is learning_rate"):
        optimizers.Adam(lr=1.0)


def test_type_hints_can_be_read():
    hints = typing.get_type_hints(optimizers.Muon.__init__)
    assert hints["weight_decay"] == float | None
    assert hints["ns_steps"] is int
    assert hints["use_ema"] is bool


def test_a_subclass_of_users_has_its_own_signature():
    class Mine(optimizers.SGD):
        def __init__(self, share=0.5, **kwargs):
            super().__init__(share, **kwargs)

    assert list(inspect.signature(Mine).parameters) == ["share", "kwargs"]
    assert float(Mine(0.25, clipnorm=1.0).learning_rate) == 0.25

    class Other(optimizers.Optimizer):
        @with_options
        def __init__(self, learning_rate=0.5, *, power=2, **options):
            super().__init__(learning_rate, **options)
            self.power = power

    assert list(inspect.signature(Other).parameters)[-3:] == ["name", "power", "kwargs"]
    assert Other(0.5, 0.1, power=3).weight_decay == 0.1


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_takes_the_same_steps_by_itself(again):
    variable, gradient = Variable([1.0, 2.0]), np.array([0.5, -0.5], "float32")
    adam = optimizers.Adam(0.1)
    adam.apply([gradient], [variable])
    other = again(adam)
    before = [v.numpy() for v in adam.variables]
    assert other.variables[0] is not adam.variables[0]
    for a, b in zip(other.variables, before, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)
