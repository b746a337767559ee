"""Names in files: what is registered comes back, and nothing else is looked up."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kerasish import ops, registry
from kerasish.errors import UnknownNameError
from kerasish.identifiers import get_by_name
from kerasish.registry import (
    CustomObjectScope,
    deserialize_keras_object,
    get_custom_objects,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
    serialize_keras_object,
)


@register_keras_serializable(package="registry")
class Scale:
    def __init__(self, by=1.0, inner=None):
        self.by, self.inner = by, inner

    def get_config(self):
        return {"by": self.by, "inner": self.inner}

    @classmethod
    def from_config(cls, config):
        if isinstance(config.get("inner"), dict):
            config["inner"] = deserialize_keras_object(config["inner"])
        return cls(**config)


@register_keras_serializable(package="registry", name="twice")
def doubled(x):
    return 2 * x


def round_trip(value):
    return deserialize_keras_object(json.loads(json.dumps(serialize_keras_object(value))))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2.5,
        "text",
        [1, [2.0, "a"]],
        {"a": {"b": [1]}},
        b"bytes",
        slice(1, None, 2),
        ...,
    ],
    ids=str,
)
def test_plain_values(value):
    assert round_trip(value) == value


def test_numpy_values():
    assert round_trip(np.float32(1.5)) == 1.5
    array = np.array([[1, 2]], "int16")
    again = round_trip(array)
    np.testing.assert_array_equal(again, array)
    assert again.dtype == array.dtype
    np.testing.assert_array_equal(round_trip(ops.convert_to_tensor([1.0, 2.0])), [1.0, 2.0])
    assert serialize_keras_object(np.dtype("float16")) == "float16"


def test_registered_class_with_another_inside():
    config = serialize_keras_object(Scale(2.0, Scale(3.0)))
    assert config["class_name"] == "Scale"
    assert config["registered_name"] == "registry>Scale"
    again = round_trip(Scale(2.0, Scale(3.0)))
    assert (again.by, again.inner.by) == (2.0, 3.0)


def test_registered_function():
    config = serialize_keras_object(doubled)
    assert config["config"] == "registry>twice"
    assert deserialize_keras_object(config) is doubled
    assert get_registered_name(doubled) == "registry>twice"
    assert get_registered_object("registry>twice") is doubled
    assert get_custom_objects()["registry>twice"] is doubled


def test_scopes_nest_and_end():
    config = {
        "module": None,
        "class_name": "Mine",
        "config": {"by": 4.0},
        "registered_name": "Mine",
    }
    with pytest.raises(UnknownNameError, match="Mine"):
        deserialize_keras_object(config)
    with CustomObjectScope({"Mine": Scale}):
        assert deserialize_keras_object(config).by == 4.0
    assert deserialize_keras_object(config, custom_objects={"Mine": Scale}).by == 4.0
    with pytest.raises(UnknownNameError):
        deserialize_keras_object(config)


def test_modules_are_never_imported():
    config = {"module": "os", "class_name": "system", "config": "true", "registered_name": None}
    with pytest.raises(ValueError, match="system"):
        deserialize_keras_object(config)
    named = {
        "module": "builtins",
        "class_name": "function",
        "config": "eval",
        "registered_name": None,
    }
    with pytest.raises(ValueError, match="eval"):
        deserialize_keras_object(named)


def test_lambdas_are_refused_both_ways():
    with pytest.raises(TypeError, match="lambda"):
        serialize_keras_object(lambda x: x)
    with pytest.raises(ValueError, match="lambda"):
        deserialize_keras_object({"class_name": "__lambda__", "config": {}})


def test_what_has_no_config_raises():
    with pytest.raises(TypeError, match="get_config"):
        serialize_keras_object(object())
    with pytest.raises(ValueError, match="get_config"):
        register_keras_serializable()(type("Bare", (), {}))


def test_shared_objects_come_back_as_one():
    config = serialize_keras_object(Scale(1.0))
    config["shared_object_id"] = 7
    a, b = deserialize_keras_object([config, dict(config)])
    assert a is b
    assert deserialize_keras_object(config) is not a


def test_unknown_names_list_the_nearest():
    with pytest.raises(UnknownNameError, match="registry>twice"):
        deserialize_keras_object(
            {"module": None, "class_name": "function", "config": "registry>twise"}
        )


def test_get_by_name():
    registry.add_builtins("keras.tests", {"Scale": Scale, "doubled": doubled})
    assert get_by_name(None, "keras.tests", "thing") is None
    assert isinstance(get_by_name("Scale", "keras.tests", "thing"), Scale)
    assert isinstance(get_by_name(Scale, "keras.tests", "thing"), Scale)
    created = Scale(5.0)
    assert get_by_name(created, "keras.tests", "thing") is created
    assert get_by_name("doubled", "keras.tests", "thing") is doubled
    with pytest.raises(UnknownNameError, match="'Scale'"):
        get_by_name("Scales", "keras.tests", "thing")
    with pytest.raises(ValueError, match="thing"):
        get_by_name(3, "keras.tests", "thing")
