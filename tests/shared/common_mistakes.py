"""Programs with the commonest mistakes, as users write them, and their tracebacks."""

from __future__ import annotations

import contextlib
import io
import linecache
import traceback
from typing import Any

_SMALL = """
model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(1)])
"""
_COMPILED = _SMALL + 'model.compile("sgd", "mse")\n'
_DATA = 'x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")\n'

# name -> (the program, what the last line of the error names: the fix)
MISTAKES: dict[str, tuple[str, str]] = {
    "text for a size": ('layer = layers.Dense(units="16")', "units is a number >= 1"),
    "wrong input shape": (
        _COMPILED + 'model.fit(np.ones((8, 5), "float32"), np.ones((8, 1)), verbose=0)',
        "Give rows of shape (4,)",
    ),
    "no compile": (_SMALL + _DATA + "model.fit(x, y, verbose=0)", "compile("),
    "misspelled argument of fit": (
        _COMPILED + _DATA + "model.fit(x, y, epoch=2, verbose=0)",
        "Did you mean 'epochs'?",
    ),
    "misspelled argument of a layer": (
        'layer = layers.Dense(3, activaton="relu")',
        "Did you mean 'activation'?",
    ),
    "unknown loss": (
        _SMALL + _DATA + 'model.compile("sgd", "mean_square_error")\nmodel.fit(x, y, verbose=0)',
        "Did you mean 'mean_squared_error'",
    ),
    "unknown optimizer": (
        _SMALL + 'model.compile("adamm", "mse")',
        "Did you mean 'adam'",
    ),
    "lengths of x and y": (
        _COMPILED + _DATA + "model.fit(x, y[:6], verbose=0)",
        "Give each row of x its row of y",
    ),
    "index beyond an embedding": (
        'model = keras.Sequential([keras.Input((3,), dtype="int32"), layers.Embedding(5, 2)])\n'
        'model.predict(np.full((2, 3), 7, "int32"), verbose=0)',
        "raise input_dim",
    ),
    "text as input": (
        _COMPILED + 'model.fit(np.array([["a", "b", "c", "d"]] * 8), np.ones((8, 1)), verbose=0)',
        "TextVectorization",
    ),
    "shapes of a loss": (
        "model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])\n"
        'model.compile("sgd", "categorical_crossentropy")\n'
        'model.fit(np.ones((8, 4), "float32"), np.ones((8, 5), "float32"), verbose=0)',
        "make them equal",
    ),
    "missing file": ('keras.saving.load_model("missing.keras")', "Give a path"),
    "rank of a convolution's input": (
        'model = keras.Sequential([layers.Conv2D(4, 3)])\nmodel(np.ones((8, 28, 28), "float32"))',
        "x[..., None]",
    ),
}


def traceback_of(name: str, keras: Any, layers: Any, np: Any) -> str:
    """Return what Python prints for a mistake; "" where the program ends without an error.

    Args:
        name: a key of `MISTAKES`.
        keras, layers, np: the modules that the program uses.
    """
    code, _ = MISTAKES[name]
    file = f"<{name}>"
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, file, "exec"), {"keras": keras, "layers": layers, "np": np})
    except Exception as error:  # noqa: BLE001 - whatever users would see
        own = error.__traceback__  # this function's frame: users see what comes after
        return "".join(traceback.format_exception(type(error), error, own and own.tb_next))
    finally:
        linecache.cache.pop(file, None)
    return ""
