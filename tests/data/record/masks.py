"""Write masks.json: what Keras's layers do with a mask, on PyTorch."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"

import keras
from mask_cases import fates


def mask_of(t: Any) -> Any:
    mask = getattr(t, "_keras_mask", None)
    return None if mask is None else keras.ops.convert_to_numpy(mask)


def give_mask(t: Any, mask: Any) -> None:
    t._keras_mask = mask


def main() -> None:
    warnings.simplefilter("ignore")  # that layers destroy masks is what is asked
    found = fates(keras.layers, keras.ops.convert_to_tensor, mask_of, give_mask)
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()]
    text = "{\n" + ",\n".join([f'"keras": "{keras.__version__}"', *lines]) + "\n}\n"
    (Path(__file__).parents[1] / "masks.json").write_text(text)


if __name__ == "__main__":
    main()
