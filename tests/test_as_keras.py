"""Programs written for `keras` and `tf.keras`, run by `python -m kerasish` and by as_keras."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kerasish
from kerasish.aliases import AliasFinder, AliasModule

CHECKOUT = Path(kerasish.__file__).parents[1]
PROGRAM = """
import sys
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers, models
import tensorflow.keras.backend as K
import tf_keras
import keras as keras3
import keras.layers as again
from keras.src.layers.layer import Layer
from keras.src.models.functional import Functional
from keras.src.callbacks.callback import Callback
from keras.src.optimizers.schedules.learning_rate_schedule import LearningRateSchedule
from keras.src import backend, ops
from keras.optimizers.schedules import ExponentialDecay
from keras.datasets import mnist
from keras.preprocessing.sequence import pad_sequences
from keras.preprocessing.image import ImageDataGenerator
from keras.src.legacy.preprocessing.image import NumpyArrayIterator
from keras.src.legacy.preprocessing import image as legacy_image
import tensorflow.keras.preprocessing.image as tf_image
from keras.utils import *

assert sys.argv[1:] == ["--epochs", "2"], sys.argv
assert layers.Dense is again.Dense is keras3.layers.Dense is tf_keras.layers.Dense
assert keras3.__version__.startswith("3.") and keras3.version() == keras3.__version__
assert ImageDataGenerator is legacy_image.ImageDataGenerator is tf_image.ImageDataGenerator
assert type(ImageDataGenerator().flow(np.zeros((2, 4, 4, 3)))) is NumpyArrayIterator
assert to_categorical([1], 2).tolist() == [[0.0, 1.0]]
tf.random.set_seed(1)
rows = tf.data.Dataset.from_tensor_slices((np.ones((8, 2), "float32"), np.ones((8, 1), "float32")))
rows = rows.shuffle(8).batch(4).prefetch(tf.data.AUTOTUNE)


class Report(Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("epoch", epoch, sorted(logs))


model = keras.Sequential([layers.Dense(3, activation="relu"), layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam(ExponentialDecay(0.1, 10, 0.9)), loss="mse")
model.fit(rows, epochs=int(sys.argv[2]), verbose=0, callbacks=[Report()])
model.save("model.keras")
assert isinstance(keras3.models.load_model("model.keras"), keras.Model)
assert isinstance(model, keras3.Model) and issubclass(Functional, keras.Model)
assert tf.constant([1.0]).dtype == tf.float32
print(type(model).__module__.partition(".")[0])
"""
MISSING = {
    "keras.nothing": "kerasish has no name 'nothing' there",
    "keras.layers.TFSMLayer": "TFSMLayer is not supported",
    "tensorflow.matmul": "try kerasish.ops.matmul",
    "tensorflow.random.normal": "try kerasish.random.normal",
    "tensorflow.errors.DataLossError": "not the rest of TensorFlow",
    "tensorflow.estimator": "not the rest of TensorFlow",
    "keras.src.layers.nothing": "no public name 'nothing' there",
}


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )  # fmt: skip


def test_a_script_runs_unchanged(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    report = run("-m", "kerasish", "train.py", "--epochs", "2", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    assert report.stdout.splitlines() == ["epoch 0 ['loss']", "epoch 1 ['loss']", "kerasish"]


def test_a_module_runs_and_its_neighbors_are_found(tmp_path):
    (tmp_path / "parts.py").write_text("import keras\nlayer = keras.layers.Dense(2)\n")
    (tmp_path / "main.py").write_text("import parts\nprint(__name__, parts.layer.units)\n")
    for arguments in (["-m", "kerasish", "-m", "main"], ["-m", "kerasish", "main.py"]):
        report = run(*arguments, cwd=tmp_path)
        assert report.stdout == "__main__ 2\n", report.stderr


def test_the_command_says_what_it_needs(tmp_path):
    report = run("-m", "kerasish", cwd=tmp_path)
    assert report.returncode == 2 and "program" in report.stderr
    report = run("-m", "kerasish", "absent.py", cwd=tmp_path)
    assert report.returncode == 2 and "no file 'absent.py'" in report.stderr


def test_as_keras_refuses_to_come_after_keras(tmp_path):
    (tmp_path / "keras.py").write_text("")
    code = "import keras, kerasish.as_keras"
    report = run("-c", code, cwd=tmp_path)
    assert "ImportError: kerasish.as_keras: keras has been imported already" in report.stderr


@pytest.fixture
def aliases(monkeypatch):
    """The modules of Keras's names, in this process for one test."""
    roots = ("keras", "tf_keras", "tensorflow")
    saved = {n: m for n, m in sys.modules.items() if n.partition(".")[0] in roots}
    for name in saved:
        del sys.modules[name]
    finder = AliasFinder()
    sys.meta_path.insert(0, finder)
    yield
    sys.meta_path.remove(finder)
    for name in [n for n in sys.modules if n.partition(".")[0] in roots]:
        del sys.modules[name]
    sys.modules.update(saved)


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_name_says_what_to_use(name, aliases):
    module, _, attribute = name.rpartition(".")
    __import__(module)
    with pytest.raises(AttributeError, match=MISSING[name]):
        getattr(sys.modules[module], attribute)


@pytest.mark.parametrize(
    "name",
    ["keras.engine", "keras.graph", "keras.src.nothing", "tensorflow.python", "keras.layers.core"],
)
def test_a_missing_module_is_an_import_error(name, aliases):
    with pytest.raises(ModuleNotFoundError, match="has no such module"):
        __import__(name)


@pytest.mark.parametrize(
    "name",
    (
        "activations applications backend callbacks config constraints datasets distribution "
        "dtype_policies export initializers layers losses metrics mixed_precision models ops "
        "optimizers preprocessing quantizers random regularizers saving tree utils visualization "
        "wrappers applications.resnet50 datasets.mnist ops.image ops.linalg ops.nn ops.numpy "
        "optimizers.schedules preprocessing.image preprocessing.sequence utils.bounding_boxes "
        "utils.legacy"
    ).split(),
)
def test_every_public_module_of_keras_can_be_imported(name, aliases):
    module = importlib.import_module(f"keras.{name}")
    assert module.__all__


def test_names_of_the_implementation(aliases):
    import keras
    from keras.src.activations import ALL_OBJECTS_DICT
    from keras.src.losses.losses import LossFunctionWrapper

    class Absolute(LossFunctionWrapper):
        def __init__(self, **options):
            super().__init__(lambda y, p: keras.ops.abs(y - p), **options)

    assert Absolute(name="absolute")([1.0], [3.0]).item() == 2.0
    ALL_OBJECTS_DICT["thrice"] = lambda x: 3 * x
    try:
        assert keras.activations.get("thrice")(2) == 6
    finally:
        del ALL_OBJECTS_DICT["thrice"]
    from keras.src.backend import get_keras_mask, set_keras_mask

    x = keras.ops.ones((2, 3))
    set_keras_mask(x, True)
    assert get_keras_mask(x) is True
    assert get_keras_mask(keras.ops.ones(2)) is None
    function = len
    assert keras.src.utils.tracking.no_automatic_dependency_tracking(function) is function
    assert keras.src.saving.saving_lib.load_model is kerasish.saving.load_model
    import tensorflow

    assert issubclass(MemoryError, tensorflow.errors.ResourceExhaustedError)
    filtering = keras.src.utils.traceback_utils.is_traceback_filtering_enabled
    assert filtering is kerasish.config.is_traceback_filtering_enabled
    with pytest.raises(ImportError):
        from keras.src.losses.losses import NoSuchLoss  # noqa: F401


def test_aliases_leave_the_modules_of_kerasish_as_they_are(aliases):
    import keras.layers

    assert isinstance(sys.modules["keras.layers"], AliasModule)
    assert kerasish.layers.__name__ == "kerasish.layers"
    assert kerasish.layers.__spec__.name == "kerasish.layers"
    assert "Dense" in dir(sys.modules["keras.layers"])
    assert keras.layers.Dense is kerasish.layers.Dense
    assert keras.src.layers.Dense is kerasish.layers.Dense
