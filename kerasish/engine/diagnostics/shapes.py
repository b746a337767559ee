"""Targets whose shape does not fit the predictions, said with the likeliest cause."""

from __future__ import annotations

from kerasish.errors import ShapeError
from kerasish.losses.targets import targets_of
from kerasish.typing import Structure


def check_shapes(
    loss: Structure, target: Structure, prediction: Structure, label: str = ""
) -> None:
    """Raise ShapeError where targets and predictions do not fit a built-in loss number by number.

    Nothing is broadcast: (n, 1) against (n, 3) would compare each number with three others.

    Args:
        label: the output's name, where there are several.
    """
    takes = targets_of(getattr(loss, "fn", None))
    true, pred = getattr(target, "shape", ()), getattr(prediction, "shape", ())
    if not takes or not true or not pred:
        return
    true, pred = tuple(true), tuple(pred)
    if takes.elementwise:
        cause = "" if _equal(true, pred) else _cause_by_number(true, pred)
    elif takes.values == "one-hot":
        cause = "" if len(true) == len(pred) and true == pred else _cause_one_hot(true, pred)
    elif takes.values == "classes" and loss.fn_kwargs.get("axis", -1) in (-1, len(pred) - 1):
        fits = true == pred[:-1] or true == (*pred[:-1], 1)
        cause = "" if fits else _cause_sparse(true, pred)
    else:
        return
    if cause:
        which = f"y of output {label!r}" if label else "y"
        raise ShapeError(
            f"{which}: {loss.fn.__name__} does not take targets of shape {true} for predictions of "
            f"shape {pred}. {cause}"
        )


def _equal(true: tuple[int, ...], pred: tuple[int, ...]) -> bool:
    """Return whether two shapes are the same but for a last axis of size 1."""
    return true == pred or (*true, 1) == pred or true == (*pred, 1)


def _cause_by_number(true: tuple[int, ...], pred: tuple[int, ...]) -> str:
    rows = (true[0], *pred[1:])
    if len(pred) == 3 and _equal(true, (pred[0], pred[-1])):
        return (
            "The model answers for every step: return_sequences=False in the last recurrent layer "
            "gives one answer a sequence."
        )
    if len(pred) > 2 and len(true) < len(pred):
        return "Flatten or pool the last layer's input (Flatten, GlobalAveragePooling2D ...)."
    if len(true) == 1 or true[-1] == 1:
        also = " For class numbers use sparse_categorical_crossentropy." if pred[-1] > 1 else ""
        return f"Give the last layer 1 unit, or targets of shape {rows}.{also}"
    units = true[-1]
    return f"The last axis has {units} targets and {pred[-1]} predictions: use {units} unit(s)."


def _cause_one_hot(true: tuple[int, ...], pred: tuple[int, ...]) -> str:
    classes = pred[-1]
    if true == pred[:-1] or true == (*pred[:-1], 1):
        return (
            "It takes one-hot targets: for class numbers use "
            f"loss='sparse_categorical_crossentropy', or y = utils.to_categorical(y, {classes})."
        )
    if len(pred) > 2 and len(true) < len(pred):
        return "Flatten or pool the last layer's input (Flatten, GlobalAveragePooling2D ...)."
    return f"Targets have {true[-1]} classes and the last layer {classes} units: make them equal."


def _cause_sparse(true: tuple[int, ...], pred: tuple[int, ...]) -> str:
    if true == pred:
        return (
            "It takes class numbers: for one-hot targets use loss='categorical_crossentropy', or "
            "y = y.argmax(-1)."
        )
    if len(pred) > 2 and len(true) < len(pred):
        return (
            "There is an answer for every place: Flatten or pool the last layer's input "
            "(return_sequences=False in a recurrent layer) for one answer per row."
        )
    return f"It takes one class number for each answer: targets of shape {pred[:-1]}."
