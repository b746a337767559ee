"""What each example must have learned, by the numbers that it prints."""

from __future__ import annotations

import re

# Expressions over the numbers that an example prints at the end. A name means the number (or
# numbers) behind these words.
# These run in processes of their own: no page of the gallery runs them (docs/conf.py).
OUTSIDE_THE_GALLERY = ("quickstart", "two_ranks")

GOALS = {
    "tabular": [({"accuracy": "accuracy"}, "accuracy > 0.95")],
    "digits_cnn": [({"accuracy": "held-out digits: accuracy"}, "accuracy > 0.98")],
    "character_model": [
        ({"guess": "guessing by frequency", "last": "after epoch 4"}, "last < guess / 1.8")
    ],
    "reverse_words": [({"right": "without a mistake:"}, "right > 0.9")],
    "attention": [({"right": "without a mistake:"}, "right > 0.95")],
    "sentiment_trees": [
        ({"words": "right: word sum", "tree": "right: tree LSTM"},
         "tree > 0.95 and words < 0.8"),
    ],
    "expressions": [
        ({"small": "no larger than in training:", "large": "with 40 operations:"},
         "small > 0.95 and large > 0.6"),
    ],
    "dates": [({"right": "never seen before, right:"}, "right > 0.9")],
    "time_series": [({"network": "network", "rival": "as yesterday"}, "network < 0.75 * rival")],
    "autoencoder": [({"pca": "PCA", "own": "autoencoder"}, "own < 0.75 * pca")],
    "two_inputs": [
        ({"error": "mean error of the result:"}, "error < 1.5"),
        ({"right": "larger or not, right:"}, "right > 0.9"),
    ],
    "transfer": [
        ({"old": "network as it is", "few": "few images only", "both": "all of it, small rate"},
         "both > few + 0.1 and both > old + 0.1"),
    ],
    "custom_train_step": [
        ({"ordinary": "ordinary", "robust": "robust"},
         "min(ordinary[0], robust[0]) > 0.95 and robust[1] > ordinary[1] + 0.2"),
    ],
    "custom_parts": [
        ({"low": "expected 0.10   measured", "middle": "expected 0.50   measured",
          "high": "expected 0.90   measured"},
         "abs(low - 0.1) < 0.06 and abs(middle - 0.5) < 0.1 and abs(high - 0.9) < 0.06"),
    ],
    "two_ranks": [({"last": "epoch 5: loss"}, "last < 1.5")],
    "q_learning": [
        ({"moves": "doing what looks best:"}, "moves <= 16"),
        ({"shortest": "takes a shortest way:"}, "shortest > 0.9"),
    ],
    "messy_data": [
        ({"mean": "always the mean rent", "known": "size known", "missing": "size missing"},
         "known < mean / 8 and missing < mean / 2"),
    ],
    "text_classification": [
        ({"bag": "bag of words", "lstm": "  LSTM"}, "lstm > 0.97 and bag < lstm - 0.15"),
    ],
    "transformer": [
        ({"sums": "held-out sums, right:"}, "sums > 0.95"),
        ({"lines": "500 such lines, right:"}, "lines > 0.85"),
    ],
    "variational_autoencoder": [
        ({"error": "two numbers per digit:"}, "error < 0.035"),
        ({"mean": "  mean", "spread": "  spread"}, "mean < 0.2 and 0.8 < spread < 1.4"),
    ],
    "imbalanced_classes": [
        # accuracy, precision, recall, cost
        ({"never": "never an alarm", "half": "plain, at 0.5", "chosen": "plain, chosen",
          "weighted": "weighted, at 0.5"},
         "never[0] > 0.97 and chosen[3] < min(half[3], never[3]) / 1.5 and "
         "weighted[2] > half[2] + 0.2 and half[1] > weighted[1] + 0.3"),
    ],
    "segmentation_unet": [
        ({"rival": "best threshold", "own": "U-Net"}, "own > 0.85 and rival < 0.6"),
    ],
    "gan": [
        ({"read": "read as requested:", "real": "of real digits:", "drawn": "of generated digits:"},
         "read > 0.9 and drawn > 0.7 * real"),
    ],
    "diffusion": [
        ({"read": "read as requested:", "real": "of real digits:", "drawn": "of generated digits:"},
         "read > 0.9 and drawn > 0.6 * real"),
    ],
    "metric_learning": [
        ({"pixels": "  pixels", "own": "  embeddings"}, "own > pixels + 0.05"),
    ],
    "grid_search": [({"best": "accuracy on rows kept apart:"}, "best > 0.95")],
    "hyperparameters_optuna": [
        ({"best": "validation accuracy, best:", "first": "validation accuracy, first:"},
         "best >= first and best > 0.95"),
        ({"honest": "held-out digits, best model:"}, "honest > 0.95"),
    ],
    "tensorboard_logs": [
        ({"low": "rate 0.0003", "middle": "rate 0.003"}, "middle > low and middle > 0.95"),
    ],
    "augmentation_fine_tuning": [
        ({"neither": "  from scratch", "augmented": "from scratch, augmented",
          "tuned": "  fine-tuned", "both": "fine-tuned, augmented"},
         "both > max(tuned, augmented) + 0.05 and tuned > neither + 0.2"),
    ],
    "fine_tuning_small": [
        ({"head": "new last layer only:", "lora": "with LoRA:"}, "lora > max(head + 0.02, 0.85)"),
        # accuracy, KiB, milliseconds
        ({"whole": "float32", "int8": "int8", "int4": "int4"},
         "min(int8[0], int4[0]) > whole[0] - 0.03 and "
         "int8[1] < 0.35 * whole[1] and int4[1] < 0.25 * whole[1]"),
    ],
}  # fmt: skip


def number_after(words: str, text: str) -> float | tuple[float, ...]:
    """Return the number, or the numbers with nothing but space between, after the last `words`."""
    result = re.findall(rf"{re.escape(words)}((?: +[\d.]+)+)", text)
    assert result, f"{words!r} is followed by no number in {text!r}"
    numbers = tuple(map(float, result[-1].split()))
    return numbers if len(numbers) > 1 else numbers[0]


def check_goals(stem: str, printed: str) -> None:
    """Check what an example printed against its goals."""
    for words, goal in GOALS.get(stem, []):
        numbers = {name: number_after(said, printed) for name, said in words.items()}
        assert eval(goal, {**numbers}), f"{goal}: {numbers}"
