"""Writes masks.json: what Keras's layers do with a mask. By hand, where Keras is installed:

KERAS_BACKEND=torch python tests/data/record_masks.py
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import keras

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "shared"))

from mask_cases import fates  # noqa: E402


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
    (HERE / "masks.json").write_text(text)


if __name__ == "__main__":
    main()
