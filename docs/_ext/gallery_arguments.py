"""What the gallery gives the examples: arguments, and their order."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

_FOLDER = tempfile.TemporaryDirectory(prefix="kerasish-gallery-")
_ORDER = (
    "tabular", "imbalanced_classes", "digits_cnn", "autoencoder", "variational_autoencoder",
    "two_inputs", "messy_data", "time_series", "text_classification", "character_model",
    "transformer", "reverse_words", "attention", "sentiment_trees", "expressions", "dates",
    "segmentation_unet", "metric_learning", "transfer",
    "augmentation_fine_tuning", "fine_tuning_small",
    "custom_parts", "custom_train_step", "gan", "diffusion", "q_learning", "tensorboard_logs",
    "grid_search", "hyperparameters_optuna",
)  # fmt: skip


def arguments(settings: dict[str, Any], script: dict[str, Any]) -> list[str]:
    """Return the command line: where the picture goes, which the page takes from Matplotlib."""
    stem = Path(script["src_file"]).stem
    return [str(Path(_FOLDER.name) / f"{stem}.png")]


class ByDifficulty:
    """The order of the README: from simple to advanced, then examples that are new there."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, file: str) -> tuple[int, str]:
        stem = Path(file).stem
        return (_ORDER.index(stem) if stem in _ORDER else len(_ORDER), stem)

    def __repr__(self) -> str:
        return "<ByDifficulty>"
