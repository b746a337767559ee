"""Record how many lines Keras's tracebacks of the commonest mistakes have."""

from __future__ import annotations

import json
import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from common_mistakes import MISTAKES, traceback_of
from facts import DATA
from keras import layers


def main() -> None:
    """Write name of a mistake -> lines, 0 where the program ends without an error."""
    lines = {n: len(traceback_of(n, keras, layers, np).splitlines()) for n in MISTAKES}
    text = json.dumps({"keras": keras.__version__, "lines": lines}, indent=1)
    (DATA / "traceback_lines.json").write_text(text + "\n", "utf-8")
    print(text)


if __name__ == "__main__":
    main()
