"""Write data_dependent.json: which models whose Python reads values train on Keras, on PyTorch."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"

import keras

sys.modules["kerasish"] = keras  # the same lines, on Keras

from python_model_losses import losses_of  # noqa: E402
from python_models import MODELS  # noqa: E402


def main() -> None:
    warnings.simplefilter("ignore")  # of weights that a batch does not use
    facts: dict[str, Any] = {
        "keras": keras.__version__, "backend": keras.backend.backend(), "losses": {}, "refused": {},
    }  # fmt: skip
    for cls in MODELS:
        try:
            facts["losses"][cls.__name__] = losses_of(keras, cls)
        except Exception as error:  # noqa: BLE001 (which model fails, and how, is a fact)
            facts["refused"][cls.__name__] = type(error).__name__
    text = json.dumps(facts, indent=1) + "\n"
    (Path(__file__).parents[1] / "data_dependent.json").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
