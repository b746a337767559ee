"""Attention and its gradients by cuDNN, for 16-bit numbers: no (targets, sources) array is kept."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from kerasish.backends.eager.cuda import cudnn
from kerasish.backends.eager.cuda.arrays import compact, empty
from kerasish.typing import Array

if TYPE_CHECKING:
    from typing_extensions import Self

# The numbers of a graph's tensors. STATS: the logarithm of the sum of a row's exponentials.
QUERY, KEY, VALUE, BIAS, OUTPUT, STATS, ARRIVING = range(1, 8)
BY_QUERY, BY_KEY, BY_VALUE, BY_BIAS = range(8, 12)
DTYPES = ("float16", "bfloat16")


class AttentionSizes(NamedTuple):
    """The key of a plan of attention.

    Attributes:
        bias: its shape, which broadcasts to (batch, heads, targets, sources); None: no bias.
        gradient: None: the result; else whether the bias also gets a gradient.
    """

    dtype: str
    batch: int
    heads: int
    key_heads: int
    targets: int
    sources: int
    size: int
    value_size: int
    bias: tuple[int, ...] | None
    scale: float
    causal: bool
    gradient: bool | None = None
    tf32: bool = False

    @classmethod
    def of(cls, q: Array, k: Array, v: Array, bias: Array, scale: float, causal: bool) -> Self:
        """Return the result's request, given arrays or tensors (batch, length, heads, size)."""
        name = q.dtype if isinstance(q.dtype, str) else q.dtype.name
        shape = None if bias is None else tuple(bias.shape)
        sizes = (q.shape[0], q.shape[2], k.shape[2], q.shape[1], k.shape[1], q.shape[3])
        return cls(name, *sizes, v.shape[3], shape, scale, causal)

    def _shapes(self) -> dict[int, tuple[int, ...]]:
        query = (self.batch, self.heads, self.targets, self.size)
        key = (self.batch, self.key_heads, self.sources, self.size)
        value, output = (*key[:3], self.value_size), (*query[:3], self.value_size)
        return {
            QUERY: query, KEY: key, VALUE: value, OUTPUT: output, ARRIVING: output,
            BY_QUERY: query, BY_KEY: key, BY_VALUE: value, STATS: (*query[:3], 1),
            BIAS: self.bias or (), BY_BIAS: self.bias or (),
        }  # fmt: skip

    def draw(self, lib: Any, graph: Any) -> None:
        """Put the tensors and the operation into the graph."""
        kind, wide = getattr(lib.data_type, cudnn.TYPES[self.dtype]), lib.data_type.FLOAT
        shapes = self._shapes()

        def lying(number: int) -> tuple[list[int], list[int]]:
            """Return sizes and strides: lengths before heads, the layout of our arrays."""
            if number in (BIAS, BY_BIAS, STATS):
                return list(shapes[number]), _rows(shapes[number])
            n, h, t, d = shapes[number]
            return [n, h, t, d], [t * h * d, d, h * d, 1]

        def given(number: int) -> Any:
            dim, stride = lying(number)
            dtype = wide if number == STATS else kind
            return graph.tensor(dim=dim, stride=stride, data_type=dtype, uid=number)

        def wanted(tensor: Any, number: int) -> None:
            dim, stride = lying(number)
            tensor.set_uid(number).set_output(True).set_dim(dim).set_stride(stride)
            tensor.set_data_type(wide if number == STATS else kind)

        inputs = {"q": given(QUERY), "k": given(KEY), "v": given(VALUE)}
        options: dict[str, Any] = {"attn_scale": self.scale}
        if self.bias is not None:
            options["bias"] = given(BIAS)
        if self.causal:
            options["diagonal_alignment"] = lib.diagonal_alignment.TOP_LEFT
            options["diagonal_band_right_bound"] = 0
        if self.gradient is None:
            result = graph.sdpa(**inputs, generate_stats=True, **options)
            numbers: tuple[int, ...] = (OUTPUT, STATS)
        else:
            inputs |= {"o": given(OUTPUT), "dO": given(ARRIVING), "stats": given(STATS)}
            if self.gradient:
                options["dBias"] = given(BY_BIAS)
            result = graph.sdpa_backward(**inputs, use_deterministic_algorithm=True, **options)
            numbers = (BY_QUERY, BY_KEY, BY_VALUE)
        for tensor, number in zip(result, numbers):
            wanted(tensor, number)


def _rows(shape: tuple[int, ...]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _planned(request: AttentionSizes, device: int) -> cudnn.GraphPlan:
    plan = cudnn.planned(request, device)
    if plan is None:
        raise RuntimeError(f"cuDNN has no plan for {request}: ask `does` first.")
    return plan


def does(request: AttentionSizes, device: int, gradient: bool | None) -> bool:
    """Return whether cuDNN computes the result; and its gradients, unless `gradient` is None.

    Args:
        gradient: whether the bias also gets one.
    """
    if cudnn.planned(request, device) is None:
        return False
    return (
        gradient is None or cudnn.planned(request._replace(gradient=gradient), device) is not None
    )


def attention(q: Any, k: Any, v: Any, bias: Any, scale: float, causal: bool) -> tuple[Any, Any]:
    """Return (softmax(q · k * scale + bias) · v, the statistics for its gradients: float32).

    Args:
        bias: None, or an array whose shape broadcasts to (batch, heads, targets, sources).
        causal: whether a target attends only to sources up to its own place.

    Shape: (batch, targets, heads, size), (batch, sources, key heads, size), (..., value size) ->
        (batch, targets, heads, value size), (batch, heads, targets, 1).
    """
    request = AttentionSizes.of(q, k, v, bias, scale, causal)
    plan = _planned(request, q.device.id)
    y = empty((*q.shape[:3], v.shape[3]), q.dtype)
    stats = empty((q.shape[0], q.shape[2], q.shape[1], 1), "float32")
    arrays = {QUERY: compact(q), KEY: compact(k), VALUE: compact(v), OUTPUT: y, STATS: stats}
    cudnn.run(plan, arrays if bias is None else {**arrays, BIAS: compact(bias)})
    return y, stats


def attention_gradient(
    g: Array, q: Array, k: Array, v: Array, bias: Array, y: Array, stats: Array, scale: float,
    causal: bool,
    by_bias: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the gradients by q, k, v and, if requested, by the bias; g: that of the result.

    Args:
        y, stats: the results of `attention`.
    """
    request = AttentionSizes.of(q, k, v, bias, scale, causal)._replace(gradient=by_bias)
    plan = _planned(request, q.device.id)
    given = {QUERY: q, KEY: k, VALUE: v, OUTPUT: y, STATS: stats, ARRIVING: g}
    wanted = {BY_QUERY: q, BY_KEY: k, BY_VALUE: v}
    if bias is not None:
        given[BIAS] = bias
    if by_bias:
        wanted[BY_BIAS] = bias
    results = {number: empty(like.shape, like.dtype) for number, like in wanted.items()}
    cudnn.run(plan, {number: compact(x) for number, x in given.items()} | results)
    return tuple(results.values())
