"""The geometry of windows: sizes, strides, padding and result sizes of convolution and pooling."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kerasish import config
from kerasish.errors import ShapeError, UnknownNameError
from kerasish.ops.basic.movement import transpose

if TYPE_CHECKING:
    from kerasish.tensor import Tensor


def per_axis(value: int | Sequence[int], count: int, what: str, least: int = 1) -> tuple[int, ...]:
    """Return `value` (a number, or one for each of `count` axes) as a tuple of ints >= `least`."""
    many = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    many = many * count if len(many) == 1 else many
    try:
        numbers = tuple(int(v.__index__()) for v in many)
    except AttributeError:
        numbers = ()
    if len(numbers) != count or min(numbers, default=least) < least:
        raise ShapeError(
            f"{what}: expected an integer >= {least}, or {count} of them, got {value!r}."
        )
    return numbers


def resolve_padding(
    padding: Any,
    sizes: tuple[Any, ...],
    window: tuple[Any, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
    what: str,
) -> str | tuple[Any, ...]:
    """Return `padding` as (before, after) an axis; a word stays where a size is not known yet.

    Args:
        padding: "valid" (none), "same" (ceil(size / stride) results, the odd place after),
            "causal" (all before), or a (before, after) pair for each axis.
    """
    if not isinstance(padding, str):
        pairs = tuple((int(a), int(b)) for a, b in padding)
        if len(pairs) != len(sizes) or any(a < 0 for a, _ in pairs):
            raise ShapeError(
                f"{what}: expected a (before, after) padding for each of {len(sizes)} axes, "
                f"got {padding}."
            )
        return pairs
    padding = padding.lower()
    if padding == "valid":
        return ((0, 0),) * len(sizes)
    if padding not in ("same", "causal"):
        raise UnknownNameError.of(f"padding of {what}", padding, ("valid", "same", "causal"))
    if None in window:
        return padding
    spans = [d * (w - 1) + 1 for w, d in zip(window, dilation)]
    if padding == "causal":
        return tuple((span - 1, 0) for span in spans)
    totals: list[int] = []
    for size, span, stride in zip(sizes, spans, strides):
        if size is None and stride != 1:
            return "same"
        short = span - 1 if stride == 1 else (-(-size // stride) - 1) * stride + span - size
        totals.append(max(short, 0))
    return tuple((total // 2, total - total // 2) for total in totals)


def window_counts(
    sizes: tuple[Any, ...],
    window: tuple[Any, ...],
    strides: tuple[int, ...],
    padding: Any,
    dilation: tuple[int, ...],
    what: str,
) -> tuple[Any, ...]:
    """Return how many windows fit along each axis (None where the size is not known)."""
    counts: list[Any] = []
    for axis, (size, w, stride, d) in enumerate(zip(sizes, window, strides, dilation)):
        if size is None:
            counts.append(None)
            continue
        if isinstance(padding, str):  # "same" and "causal" give as many
            counts.append(-(-size // stride))
            continue
        if w is None:
            counts.append(None)
            continue
        before, after = padding[axis]
        count = (size + before + after - d * (w - 1) - 1) // stride + 1
        if count < 1:
            raise ShapeError(
                f"{what}: a window of {d * (w - 1) + 1} places does not fit into the "
                f"{size} + {before} + {after} (padding) places of spatial axis {axis}, "
                f"sizes {sizes}. Use padding='same', a smaller window or fewer such layers."
            )
        counts.append(count)
    return tuple(counts)


def channels_to_last(x: Tensor, data_format: str) -> Tensor:
    """Return x with its channels last, for any `data_format` of x."""
    if data_format == "channels_last":
        return x
    return transpose(x, (0, *range(2, len(x.shape)), 1))


def channels_back(y: Tensor, data_format: str) -> Tensor:
    """Return y, whose channels are last, in `data_format`."""
    if data_format == "channels_last":
        return y
    ndim = len(y.shape)
    return transpose(y, (0, ndim - 1, *range(1, ndim - 1)))


def layout(data_format: str | None) -> str:
    """Return "channels_last" or "channels_first", the process's default for None."""
    return config.standardize_data_format(data_format)


def padding_widths(
    sizes: Sequence[int], counts: Sequence[int], window: Sequence[int], strides: Sequence[int],
    padding: Sequence[tuple[int, int]], dilation: Sequence[int],
) -> list[tuple[int, int]]:  # fmt: skip
    """Return (before, after) for each spatial axis: zeros that make it long enough for all windows.

    Args:
        sizes: the spatial sizes.
        counts: the number of windows along each axis.
        window, strides, padding, dilation: one for each axis, resolved.
    """
    widths = []
    for size, count, w, s, (before, _), d in zip(sizes, counts, window, strides, padding, dilation):
        end = (count - 1) * s + (w - 1) * d + 1
        widths.append((before, max(end - before - size, 0)))
    return widths


def window_places(
    window: Sequence[int], counts: Sequence[int], strides: Any, dilation: Any
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Yield (place in the window, slices of the padded data that meet it), in C order."""
    for place in itertools.product(*map(range, window)):
        cuts = (
            slice(k * d, k * d + (count - 1) * s + 1, s)
            for k, count, s, d in zip(place, counts, strides, dilation)
        )
        yield place, (slice(None), *cuts)
