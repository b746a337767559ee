"""Every weight of a model is in its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers
from kerasish.callbacks.nan_tracer import OpWatch
from kerasish.engine.diagnostics import Flags
from kerasish.saving.formats import weights
from kerasish.saving.paths import places


class Holder(layers.Layer):
    """A layer that holds layers in whatever way it is given."""

    def __init__(self, *parts: Any) -> None:
        super().__init__()
        for i, part in enumerate(parts):
            setattr(self, f"part_{i}", part)

    def call(self, x: Any) -> Any:
        return x


def stack(*parts: Any) -> Any:
    return keras.Sequential([keras.Input((4,)), *parts, layers.Dense(4)])


def shapes_of_nesting() -> Any:
    """Return models in which lists of layers are made, and freed, while they are walked through."""
    yield Holder(stack(layers.Dropout(0.5)), Holder(stack(layers.Dense(4))))
    for count in range(1, 6):
        yield Holder(*(Holder(stack(*[layers.Dense(4)] * 1)) for _ in range(count)))
        yield Holder([stack() for _ in range(count)], {"a": Holder(stack(stack()))})
        yield stack(*(stack(stack(), layers.Dropout(0.5)) for _ in range(count)))
        yield Holder(stack(), [Holder(stack()), [stack(), (Holder(stack()),)]], stack(stack()))


def test_walks_find_every_weight() -> None:
    for model in shapes_of_nesting():
        owned = [v for place in places(model) for v in place.owner.own_variables()]
        assert {id(v) for v in owned} == {id(v) for v in model.weights}
        assert len(owned) == len(model.weights)


FORMATS = ["whole.keras", "some.weights.h5", "some.safetensors", "many.weights.json", "old.h5"]


def trained(width: int = 4) -> Any:
    model = keras.Sequential([keras.Input((3,)), stack_of(width), layers.Dense(2)])
    model.compile("adam", "mse")
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    return model


def stack_of(width: int) -> Any:
    return keras.Sequential([keras.Input((3,)), layers.Dense(width, name="inner")])


def save(model: Any, path: Path) -> None:
    if path.suffix == ".json":
        model.save_weights(path, max_shard_size=1)
    elif path.suffix == ".safetensors" or ".weights." in path.name:
        model.save_weights(path)
    else:
        model.save(path)


def bytes_below(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


CASES = [(n, part) for n in FORMATS for part in ("layers/sequential/layers/dense", "optimizer")]


# The older format writes the optimizer's own list.
@pytest.mark.parametrize(("name", "lost"), [c for c in CASES if c != ("old.h5", "optimizer")])
def test_a_save_that_misses_a_variable_leaves_the_old_file(
    name: str, lost: str, tmp_path: Path, monkeypatch: Any
) -> None:
    model = trained()
    path = tmp_path / name
    save(model, path)
    before = bytes_below(tmp_path)
    with monkeypatch.context() as patch:
        if name == "old.h5":
            inner = model.layers[0].layers[0]
            patch.setattr("kerasish.saving.formats.legacy._trainable_first", without(inner.kernel))
        else:
            result = places
            patch.setattr(weights, "places", lambda m: [p for p in result(m) if p.path != lost])
        with pytest.raises(ValueError, match=r"have no place in the file.*Nothing was saved"):
            save(model, path)
    assert bytes_below(tmp_path) == before
    save(model, path)


def without(variable: Any) -> Any:
    return lambda variables: [v for v in variables if v is not variable]


class Doubled(keras.Model):
    """A functional model with a weight, and perhaps a layer, outside of its graph."""

    def __init__(self, beside: bool) -> None:
        x = keras.Input((3,))
        super().__init__(x, layers.Dense(2)(x))
        self.factor = self.add_weight(shape=(), initializer="ones", name="factor")
        self.beside = stack_of(2) if beside else None


def test_weights_beside_a_graph(tmp_path: Path) -> None:
    model, other = Doubled(True), Doubled(True)
    for v in model.weights:
        v.assign(np.full(v.shape, 7.0))
    model.save_weights(tmp_path / "a.weights.h5")
    other.load_weights(tmp_path / "a.weights.h5")
    assert all((v.numpy() == 7).all() for v in other.weights)
    with pytest.raises(ValueError, match=r"no place in the file.*inner.*save as \.keras"):
        model.save(tmp_path / "a.h5")
    assert not (tmp_path / "a.h5").exists()
    plain, target = Doubled(False), Doubled(False)
    plain.factor.assign(5.0)
    plain.save(tmp_path / "b.h5")
    target.load_weights(tmp_path / "b.h5")
    assert float(target.factor.numpy()) == 5.0


def test_parts_that_share_a_place_are_refused(tmp_path: Path) -> None:
    model = Holder(layers.Dense(2), layers.Dense(2))
    for part in (model.part_0, model.part_1):
        part.build((None, 3))
    model.built = True
    model.__dict__["list/dense"] = model.__dict__.pop("part_0")
    model.list = [model.__dict__.pop("part_1")]
    with pytest.raises(ValueError, match="same place 'list/dense/vars'"):
        keras.saving.save_weights(model, tmp_path / "a.weights.h5")


def test_flags_of_layers_that_are_gone_are_no_ones_else() -> None:
    frozen = [layers.Dense(1, trainable=False) for _ in range(50)]
    flags = Flags(frozen)
    del frozen
    assert flags.changed([layers.Dense(1) for _ in range(50)]) == []


def test_arrays_of_weights_that_were_assigned_are_no_ones_else() -> None:
    model = keras.Sequential([keras.Input((3,)), *(layers.Dense(3) for _ in range(20))])
    watch = OpWatch(model, {})
    for v in model.weights:
        v.assign(np.zeros(v.shape, "float32"))
    gone = [np.full((3, 3), np.nan, "float32") for _ in range(200)]
    assert watch.first_for(gone) is None
