"""What does not fit is never silent, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish as keras
from kerasish import layers


def make(units: tuple[int, ...] = (4, 4, 2), names: tuple[str, ...] = ("a", "b", "c")) -> Any:
    parts = [layers.Dense(u, name=n) for u, n in zip(units, names)]
    return keras.Sequential([keras.Input((4,)), *parts])


def values(model: Any) -> list[Any]:
    return [v.numpy().copy() for v in model.weights]


def assert_untouched(model: Any, before: list[Any]) -> None:
    for now, then in zip(values(model), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.fixture(params=["weights.h5", "keras", "h5"])
def path(request: Any, tmp_path: Path) -> Path:
    return tmp_path / f"model.{request.param}"


def save(model: Any, path: Path) -> None:
    if path.name.endswith("weights.h5"):
        model.save_weights(path)
    else:
        model.save(path)


def test_all_of_what_does_not_fit_is_listed(path: Path) -> None:
    save(make((4, 4, 2)), path)
    model = make((5, 3, 2))
    before = values(model)
    with pytest.raises(ValueError, match="do not fit") as error:
        model.load_weights(path)
    text = str(error.value)
    for shape in ("(4, 5)", "(4, 4)", "(5, 3)", "(3, 2)", "(5,)"):
        assert shape in text
    assert_untouched(model, before)


def test_missing_and_extra_layers_are_errors(path: Path) -> None:
    save(make((4, 4, 2)), path)
    shorter = make((4, 4), ("a", "b"))
    before = values(shorter)
    with pytest.raises(ValueError, match="extra"):
        shorter.load_weights(path)
    assert_untouched(shorter, before)
    longer = make((4, 4, 2, 2), ("a", "b", "c", "d"))
    before = values(longer)
    with pytest.raises(ValueError, match="missing"):
        longer.load_weights(path)
    assert_untouched(longer, before)


def test_what_fits_is_loaded_with_skip_mismatch(path: Path) -> None:
    source = make((4, 4, 2))
    save(source, path)
    model = make((4, 4, 3))
    with pytest.warns(UserWarning, match="skipped"):
        model.load_weights(path, skip_mismatch=True)
    for a, b in zip(values(source)[:4], values(model)[:4], strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_same_names_in_another_order_need_a_word(path: Path) -> None:
    source = make((4, 4, 4))
    save(source, path)
    for names in (("a", "c", "b"), ("c", "a", "b"), ("b", "a", "c")):
        model = make((4, 4, 4), names)
        before = values(model)
        with pytest.raises(ValueError, match="moved"):
            model.load_weights(path)
        assert_untouched(model, before)
    model.load_weights(path, by="position")
    np.testing.assert_array_equal(values(model)[0], values(source)[0])
    model.load_weights(path, by="name")
    np.testing.assert_array_equal(values(model)[0], values(source)[2])
    with pytest.raises(ValueError, match="by is"):
        model.load_weights(path, by="size")


def test_by_name_takes_what_legacy_files_share(tmp_path: Path) -> None:
    source = make((4, 4, 2))
    source.save(tmp_path / "model.h5")
    model = make((4, 4, 3), ("x", "b", "y"))
    before = values(model)
    model.load_weights(tmp_path / "model.h5", by_name=True)
    np.testing.assert_array_equal(values(model)[2], values(source)[2])
    np.testing.assert_array_equal(values(model)[0], before[0])


def test_saving_changes_nothing(path: Path) -> None:
    model = make()
    model.compile("adam", "mse")
    model.fit(np.ones((8, 4)), np.ones((8, 2)), verbose=0)
    before = values(model) + [v.numpy().copy() for v in model.optimizer.variables]
    save(model, path)
    after = values(model) + [v.numpy().copy() for v in model.optimizer.variables]
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_optimizer_comes_back_with_the_weights(path: Path) -> None:
    x, y = np.ones((8, 4)), np.ones((8, 2))
    model = make()
    model.compile("adam", "mse")
    model.fit(x, y, epochs=2, verbose=0)
    save(model, path)
    if path.name.endswith("weights.h5"):
        other = make()
        other.compile("adam", "mse")
        other.load_weights(path)
    else:
        other = keras.saving.load_model(path)
    for a, b in zip(model.optimizer.variables, other.optimizer.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert model.train_on_batch(x, y) is not None
    other.train_on_batch(x, y)
    for a, b in zip(values(model), values(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_another_optimizer_s_state_is_left_out_with_a_warning(tmp_path: Path) -> None:
    model = make()
    model.compile("adam", "mse")
    model.fit(np.ones((8, 4)), np.ones((8, 2)), verbose=0)
    model.save_weights(tmp_path / "a.weights.h5")
    other = make()
    other.compile("rmsprop", "mse")
    with pytest.warns(UserWarning, match="variables of the optimizer"):
        other.load_weights(tmp_path / "a.weights.h5")
    for a, b in zip(values(model), values(other), strict=True):
        np.testing.assert_array_equal(a, b)


class Odd(layers.Layer):
    """Keeps its numbers its own way, and may fail while loading."""

    fails = False

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, x: Any) -> Any:
        return x * self.scale

    def save_own_variables(self, store: Any) -> None:
        store["scale"] = self.scale.numpy()

    def load_own_variables(self, store: Any) -> None:
        self.scale.assign(store["scale"])
        if self.fails:
            raise KeyError("the layer's own trouble")


def test_a_layer_that_fails_while_loading_leaves_all_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "odd.weights.h5"
    source = keras.Sequential([keras.Input((2,)), Odd(), layers.Dense(2)])
    source.layers[0].scale.assign(3.0)
    source.save_weights(path)
    model = keras.Sequential([keras.Input((2,)), Odd(), layers.Dense(2)])
    before = values(model)
    Odd.fails = True
    try:
        with pytest.raises(ValueError, match="own trouble"):
            model.load_weights(path)
    finally:
        Odd.fails = False
    assert_untouched(model, before)
    model.load_weights(path)
    assert float(model.layers[0].scale.numpy()) == 3.0


@pytest.mark.parametrize("number", [1, 2, 6])
def test_an_interruption_while_weights_are_assigned_leaves_all_as_it_was(
    path: Path, number: int, monkeypatch: Any
) -> None:
    source = make()
    save(source, path)
    model = make()
    before, calls, assign = values(model), [], keras.Variable.assign

    def interrupted(self: Any, value: Any) -> Any:
        calls.append(self)
        result = assign(self, value)
        if len(calls) == number:
            raise KeyboardInterrupt  # as a user's Ctrl-C: after this weight, before the next
        return result

    with monkeypatch.context() as patch:
        patch.setattr(keras.Variable, "assign", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.load_weights(path)
    assert len(calls) >= number
    assert_untouched(model, before)
    model.load_weights(path)
    assert_untouched(model, values(source))


def test_names_and_endings_are_checked(tmp_path: Path) -> None:
    model = make()
    with pytest.raises(ValueError, match=r"\.keras"):
        model.save(tmp_path / "model.txt")
    with pytest.raises(ValueError, match=r"\.weights\.h5"):
        model.save_weights(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="only weights"):
        model.save(tmp_path / "model.weights.h5")
    with pytest.raises(FileNotFoundError, match=r"none\.keras"):
        keras.saving.load_model(tmp_path / "none.keras")
    with pytest.raises(FileNotFoundError, match=r"none\.weights"):
        model.load_weights(tmp_path / "none.weights.h5")
    with pytest.raises(ValueError, match="no weights yet"):
        keras.Sequential([layers.Dense(2)]).save_weights(tmp_path / "a.weights.h5")
    model.save(tmp_path / "model.keras")
    with pytest.raises(FileExistsError, match="overwrite"):
        model.save(tmp_path / "model.keras", overwrite=False)


def test_a_folder_holds_what_an_archive_holds(tmp_path: Path) -> None:
    model = make()
    for _ in range(2):  # the second replaces the first
        model.save(tmp_path / "folder", zipped=False)
    assert sorted(p.name for p in (tmp_path / "folder").iterdir()) == [
        "config.json", "metadata.json", "model.weights.h5",
    ]  # fmt: skip
    again = keras.saving.load_model(tmp_path / "folder")
    for a, b in zip(values(model), values(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_bfloat16_and_integers_keep_their_bits(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, dtype="bfloat16")])
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.saving.load_model(path)
    assert again.weights[0].dtype == "bfloat16"
    a, b = (m.weights[0].numpy().view("uint16") for m in (model, again))
    np.testing.assert_array_equal(a, b)
