"""Convolutions by kernels of one pixel, and their gradients, as matrix products.

oneDNN's convolutions divide images into rows. The rows of small images do not fill its loops: the
product of all pixels by the kernel takes 0.5 to 0.97 of the time. For larger images the library is
as fast. Pixels that strides leave out are left out before the product.
"""

from __future__ import annotations

import math

from kerasish.backends.onednn import native
from kerasish.backends.static.lowering.library import View, make_matmul
from kerasish.backends.static.lowering.units import Unit
from kerasish.graph.ir import Node, Value
from kerasish.ops.basic.movement import strided_slice, unslice

MOST_PIXELS = 36  # of an image of the result


def make_pointwise(
    node: Node, bias: Value | None = None, out: Value | None = None, added: Value | None = None
) -> Unit | None:
    """Return the product that computes a convolution or a gradient of one; None for others.

    Args:
        node: the convolution.
        bias: added along the last axis.
        out: the value of the result; None: the node's output.
        added: what `out` holds before, if the convolution is added to it.
    """
    if not _is_pointwise(node) or _is_strided(node):
        return None
    a, b = map(_matrix, node.inputs)
    if node.op.name == "convolution_data_gradient":
        b = _transposed(b)
    elif node.op.name == "convolution_kernel_gradient":
        a = _transposed(a)
    return make_matmul(a, b, out or node.out, bias, added=added)


def without_strides(node: Node) -> list[Node]:
    """Return nodes that compute a strided convolution by one without strides; [] for others."""
    if not _is_pointwise(node) or not _is_strided(node):
        return []
    x, y = _images(node)
    steps, sizes = node.attrs["strides"], y.shape[1:-1]
    places = [(0, (size - 1) * step + 1, step) for size, step in zip(sizes, steps)]
    slices = ((0, x.shape[0], 1), *places, (0, x.shape[-1], 1))
    pixels = Value((*y.shape[:-1], x.shape[-1]), x.dtype)
    attrs = {**node.attrs, "strides": (1,) * len(steps)}
    if node.op.name == "convolution_data_gradient":
        product = Node(node.op, node.inputs, {**attrs, "size": sizes}, [pixels])
        return [product, Node(unslice, [pixels], {"shape": x.shape, "slices": slices}, [x])]
    picked = Node(strided_slice, [x], {"slices": slices}, [pixels])
    return [picked, Node(node.op, [pixels, node.inputs[1]], attrs, node.outputs)]


def _images(node: Node) -> tuple[Value, Value]:
    """Return the convolution's images and results, or their gradients."""
    first, second = node.inputs
    if node.op.name == "convolution_kernel_gradient":
        return first, second
    ends = first, node.out
    return ends if node.op.name == "convolution" else ends[::-1]


def _is_pointwise(node: Node) -> bool:
    if not node.op.name.startswith("convolution") or native.available():
        return False
    attrs, is_sum = node.attrs, node.op.name == "convolution_kernel_gradient"
    kernel = node.out if is_sum else node.inputs[1]
    values = (*node.inputs, node.out)
    plain = attrs["groups"] == 1 and not any(map(any, attrs["padding"]))
    plain = plain and set(kernel.shape[:-2]) == {1}
    if not plain or any(v.dtype != "float32" or v.size == 0 for v in values):
        return False
    return math.prod(_images(node)[1].shape[1:-1]) <= MOST_PIXELS


def _is_strided(node: Node) -> bool:
    return any(step != 1 for step in node.attrs["strides"])


def _matrix(v: Value) -> View:
    shape = (math.prod(v.shape[:-1]), v.shape[-1])
    return View(v, shape, (shape[1], 1))


def _transposed(a: View) -> View:
    return View(a.root, a.shape[::-1], a.strides[::-1])
