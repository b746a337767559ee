"""Winograd's minimal filtering F(2x2, 3x3): the transforms, and windows of images.

A tile of 2x2 outputs of a 3x3 convolution with strides 1 is

    y = A^T ((G g G^T) * (B^T d B)) A

where d is the 4x4 window of the image, g the kernel, and * multiplies element by element: 16
multiplications instead of 36. Its gradient with respect to the kernel has the same three parts:

    dg = G^T ((B^T d B) * (A dy A^T)) G

All functions take and return matrices as lists, row by row. The factors are 0, 1, -1 and 1/2, so
rounding errors are about as large as those of a direct sum. An output depends only on those parts
of a product that its own 3x3 window reaches. Source: Lavin & Gray 2015, arXiv:1509.09308.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kerasish.backends.static.codegen.tiles import word
from kerasish.backends.static.machine.assembly import Value, Writer

SIDE = 4  # of a window, and of a transformed tile


def transformed_window(w: Writer, window: Sequence[Value]) -> list[Value]:
    """Return B^T d B of a 4x4 window."""

    def one(d: Sequence[Value]) -> list[Value]:
        return [w.sub(d[0], d[2]), w.add(d[1], d[2]), w.sub(d[2], d[1]), w.sub(d[1], d[3])]

    return _on_both_axes(one, window, 4)


def transformed_kernel(w: Writer, kernel: Sequence[Value]) -> list[Value]:
    """Return G g G^T of a 3x3 kernel."""

    def one(g: Sequence[Value]) -> list[Value]:
        # Each half is taken first, so that no sum overflows.
        a, b, c = (w.mul(x, w.like(x, 0.5)) for x in g)
        outer = w.add(a, c)
        return [g[0], w.add(outer, b), w.sub(outer, b), g[2]]

    return _on_both_axes(one, kernel, 3)


def outputs(w: Writer, products: Sequence[Value]) -> list[Value]:
    """Return A^T m A, the 2x2 outputs of a 4x4 tile of products."""

    def one(m: Sequence[Value]) -> list[Value]:
        return [w.add(m[0], w.add(m[1], m[2])), w.sub(w.sub(m[1], m[2]), m[3])]

    return _on_both_axes(one, products, 4)


def kernel_slopes(w: Writer, sums: Sequence[Value]) -> list[Value]:
    """Return G^T u G, the gradient of a 3x3 kernel."""

    def one(u: Sequence[Value]) -> list[Value]:
        a, b = (w.mul(x, w.like(x, 0.5)) for x in u[1:3])
        both = w.add(a, b)
        return [w.add(u[0], both), w.sub(a, b), w.add(both, u[3])]

    return _on_both_axes(one, sums, 4)


def _on_both_axes(
    one: Callable[[Sequence[Value]], list[Value]], matrix: Sequence[Value], size: int
) -> list[Value]:
    """Apply a transform of vectors to the columns of a matrix, then to its rows."""
    columns = [one(matrix[j::size]) for j in range(size)]
    return [v for row in zip(*columns, strict=True) for v in one(row)]


def window(
    w: Writer, image: Value, y: Value, x: Value, sizes: tuple[Value, Value, Value], zeros: Value
) -> list[Value]:
    """Return the addresses of the 16 pixels of a 4x4 window of an image.

    Args:
        w: where the code is written.
        image: the address of pixel (0, 0).
        y, x: the first pixel of the window, which may be outside the image.
        sizes: height, width and channels of the image.
        zeros: the address of as many zeros as there are channels, which stand for pixels outside.
    """
    height, width, channels = sizes
    lines = [w.add(y, word(i)) for i in range(SIDE)]
    columns = [w.add(x, word(j)) for j in range(SIDE)]
    reached = [w.compare("ult", j, width) for j in columns]
    at = w.address(image, w.mul(w.add(w.mul(y, width), x), channels), 4)
    line, results = w.mul(width, channels), []
    for i in lines:
        inside, pixel = w.compare("ult", i, height), at
        for both in (w.bits_and(inside, j) for j in reached):
            results.append(w.select(both, pixel, zeros))
            pixel = w.address(pixel, channels, 4)
        at = w.address(at, line, 4)
    return results
