"""English text that every Python carries: its own language reference, about 460,000 characters."""

from __future__ import annotations

import numpy as np

from kerasish.datasets.sources import Pair


def load_data() -> str:
    """Return the help topics of Python's `pydoc`, in alphabetical order, as one text.

    The text depends on the version of Python a little, on nothing else.

    Example:
        >>> text = load_data()
        >>> len(text) > 300_000, "The assert statement" in text or '"assert" statement' in text
        (True, True)
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise ImportError(
            "english_text: this Python lacks pydoc_data, part of its standard library "
            "(Debian: install libpython3-stdlib)."
        ) from error
    return "\n\n".join(topics[name] for name in sorted(topics))


def load_windows(
    length: int = 80, stride: int | None = None, test_split: float = 0.1
) -> tuple[Pair, Pair, str]:
    """Return ((x_train, y_train), (x_test, y_test), characters) for a model of the next character.

    y[i, t] is the character after x[i, t]; numbers are positions in the string `characters`. The
    test windows come from the end of the text and share no character with the training windows.

    Args:
        length: characters a window.
        stride: characters from the beginning of one window to that of the next; default `length`.
        test_split: part of the text for the test, in (0, 1).

    Shape:
        x, y: (windows, length), int32.

    Example:
        >>> (x, y), _, characters = load_windows(length=40)
        >>> bool((x[:, 1:] == y[:, :-1]).all()), x.shape[1]
        (True, 40)
    """
    if length < 1 or (stride is not None and stride < 1):
        raise ValueError(f"load_windows: expected length, stride >= 1, got {length}, {stride}.")
    if not 0 < test_split < 1:
        raise ValueError(f"test_split: expected a number in (0, 1), got {test_split!r}.")
    text = load_data()
    characters = "".join(sorted(set(text)))
    codes = np.searchsorted(_code_points(characters), _code_points(text)).astype(np.int32)
    cut = int(len(codes) * (1 - test_split))
    step = stride or length
    return _windows(codes[:cut], length, step), _windows(codes[cut:], length, step), characters


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def _windows(codes: np.ndarray, length: int, step: int) -> Pair:
    if len(codes) <= length:
        raise ValueError(f"length={length}: this part of the text has {len(codes)} characters.")
    windows = np.lib.stride_tricks.sliding_window_view(codes, length + 1)[::step]
    return windows[:, :-1].copy(), windows[:, 1:].copy()
