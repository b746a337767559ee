"""Convolutions, their gradients and mean pooling as oneDNN primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerasish.backends import onednn
from kerasish.backends.onednn import native
from kerasish.backends.onednn.convolution import Geometry
from kerasish.backends.static.lowering.library import ADDING, LibraryUnit
from kerasish.backends.static.lowering.units import Unit
from kerasish.graph.ir import Node, Value


def geometry_of(x_shape: Sequence[int], kernel: Sequence[int], attrs: dict[str, Any]) -> Geometry:
    """Return the geometry of a convolution or its gradients.

    Args:
        x_shape, kernel: the shapes of the convolution's input and kernel.
        attrs: of the node.
    """
    return onednn.Geometry(
        tuple(x_shape), kernel[-1], tuple(kernel[:-2]), attrs["strides"], attrs["dilation"],
        attrs["padding"], attrs["groups"],
    )  # fmt: skip


class ConvolutionUnit(LibraryUnit):
    """A convolution, or one of its two gradients.

    Attributes:
        plain_convolution: (node, bias, out), if the result depends only on these; else None.
    """

    def __init__(
        self, node: Node, bias: Value | None = None, out: Value | None = None,
        added: Value | None = None,
    ) -> None:  # fmt: skip
        name, attrs = node.op.name, node.attrs
        self.plain_convolution: tuple[Node, Value | None, Value] | None = None
        first, second = node.inputs
        out = out or node.out
        super().__init__(name, [v for v in (first, second, bias, added) if v], [out])
        self.made_of = node, bias, out, added
        dtype = out.dtype
        if name == "convolution":
            g = geometry_of(first.shape, second.shape, attrs)
            if added is None:
                self.plain_convolution = node, bias, out
            self.primitive = onednn.convolution(
                g, dtype=dtype, bias=None if bias is None else bias.dtype,
                post=() if added is None else ADDING,
            )  # fmt: skip
            self.arguments = {"x": first, "weights": second, "y": out}
            if bias is not None:
                self.arguments["bias"] = bias
            self.plain = {"weights": onednn.plain_weights(g, dtype)}
            self.weights = "weights"
        elif name == "convolution_data_gradient":
            g = geometry_of(out.shape, second.shape, attrs)
            self.primitive = onednn.convolution_data_gradient(g, dtype=dtype)
            self.arguments = {"dy": first, "weights": second, "dx": out}
            self.plain = {"weights": onednn.plain_weights(g, dtype)}
            self.weights = "weights"
        else:
            g = geometry_of(first.shape, out.shape, attrs)
            self.primitive = onednn.convolution_weights_gradient(g, dtype=dtype)
            self.arguments = {"x": first, "dy": second, "dweights": out}
            self.plain = {"dweights": onednn.plain_weights(g, dtype)}
            self.results = ("dweights",)
        self._finish()


def make_convolution(
    node: Node, bias: Value | None = None, out: Value | None = None, added: Value | None = None
) -> Unit | None:
    """Return the unit for a convolution node, or None where oneDNN has none.

    Args:
        bias: added along the last axis.
        out: the value of the result; None: the node's output.
        added: what `out` holds before, if the convolution is added to it.
    """
    if native.available() or any(v.size == 0 for v in (*node.inputs, node.out)):
        return None
    if node.out.dtype not in ("float32", "bfloat16"):
        return None
    try:
        return ConvolutionUnit(node, bias, out, added)
    except (onednn.OneDnnError, ValueError):
        return None


# --- poolings ---------------------------------------------------------------------------------


class PoolUnit(LibraryUnit):
    """A mean pooling or its gradient. Maximum pooling is in `pool`: that of oneDNN drops NaN."""

    OPS = ("pool_average", "pool_average_gradient")

    def __init__(self, node: Node) -> None:
        super().__init__(node.op.name, node.inputs, node.outputs)
        self.made_of = (node,)
        attrs, forward = node.attrs, node.op.name == "pool_average"
        x = node.inputs[0] if forward else node.out
        g = onednn.pooling_geometry(x.shape, attrs["size"], attrs["strides"], attrs["padding"])
        make = onednn.pool_forward if forward else onednn.pool_backward
        self.primitive = make("average", g, dtype=node.out.dtype)
        names = ("x", "y") if forward else ("dy", "dx")
        self.arguments = dict(zip(names, (*node.inputs, node.out), strict=True))
        self._finish()


def make_pool(node: Node) -> Unit | None:
    """Return the unit for a mean pooling node, or None where oneDNN has none."""
    if native.available() or node.out.dtype not in ("float32", "bfloat16") or node.out.size == 0:
        return None
    if node.op.name not in PoolUnit.OPS:
        return None
    try:
        return PoolUnit(node)
    except (onednn.OneDnnError, ValueError):
        return None
