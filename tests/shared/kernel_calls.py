"""One call for each CUDA kernel: `CALLS[kernel](put)` makes its inputs with `put`, returns arrays.

`put(numbers)` takes a float64 array and gives one of the dtype under test on the device;
`put(numbers, dtype)` gives one of that dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerasish import optimizers
from kerasish.backends.eager.cuda import (
    KERNELS,
    activation,
    fused_metrics,
    heads,
    norm,
    random,
    recurrent,
    softmax,
    update,
)
from kerasish.optimizers.fused_update import formula_of
from kerasish.tensor import Variable

Put = Callable[..., Any]


def some(*shape: int, seed: int = 0) -> Any:
    """Return random numbers."""
    return np.random.default_rng(seed + 77).standard_normal(shape)


def _whole(put: Put, high: int, *shape: int, dtype: str = "int32") -> Any:
    return put(np.random.default_rng(5).integers(0, high, shape), dtype)


def _softmax(put: Put) -> list[Any]:
    return [softmax.softmax(put(some(5, n)), log) for n in (7, 40, 1300) for log in (False, True)]


def _softmax_gradient(put: Put) -> list[Any]:
    y = softmax.softmax(put(some(5, 40)))
    return [softmax.softmax_gradient(put(some(5, 40, seed=1)), y)]


def _class_loss(put: Put) -> list[Any]:
    return list(softmax.class_loss(_whole(put, 40, 5), put(some(5, 40))))


def _class_loss_gradient(put: Put) -> list[Any]:
    classes, x = _whole(put, 40, 5), put(some(5, 40))
    _, whole = softmax.class_loss(classes, x)
    return [softmax.class_loss_gradient(put(some(5)), classes, x, whole)]


def _target_loss(put: Put) -> list[Any]:
    return list(softmax.target_loss(put(abs(some(5, 40))), put(some(5, 40, seed=1))))


def _target_loss_gradient(put: Put) -> list[Any]:
    t, x = put(abs(some(5, 40))), put(some(5, 40, seed=1))
    _, whole, weight = softmax.target_loss(t, x)
    return [softmax.target_loss_gradient(put(some(5)), t, x, whole, weight)]


def _layer_norm(put: Put) -> list[Any]:
    gamma, beta = put(some(1200)), put(some(1200, seed=1))
    found = norm.layer_norm(put(some(3, 1200, seed=2)), gamma, beta)
    return [*found, *norm.group_norm(put(some(2, 5, 5, 16)), 4)]


def _layer_norm_gradient(put: Put) -> list[Any]:
    x, gamma = put(some(70, 24)), put(some(24))
    _, mean, scale = norm.layer_norm(x, gamma)
    found = norm.layer_norm_gradient(put(some(70, 24, seed=1)), x, gamma, mean, scale)
    grouped, g = put(some(2, 5, 5, 24)), put(some(2, 5, 5, 24, seed=3))
    _, mean, scale = norm.group_norm(grouped, 4)
    return [*found, *norm.group_norm_gradient(g, grouped, 4, gamma, mean, scale)]


def _batch_norm(put: Put) -> list[Any]:
    x = put(some(300, 24))
    mean, variance = norm.column_moments(x)
    return [mean, variance, *norm.batch_norm(x, mean, variance, put(some(24)), put(some(24)))]


def _batch_norm_training(put: Put) -> list[Any]:
    x, f = put(some(300, 24)), lambda seed: put(abs(some(24, seed=seed)), "float32")
    return list(norm.batch_norm_training(x, f(1), f(2), f(3), f(4), 0.9, 0.01))


def _batch_norm_gradient(put: Put) -> list[Any]:
    x = put(some(300, 24))
    mean, variance = norm.column_moments(x)
    _, scale = norm.batch_norm(x, mean, variance)
    g, gamma = put(some(300, 24, seed=1)), put(some(24))
    return list(norm.batch_norm_gradient(g, x, mean, scale, gamma))


def _bias_activation(put: Put) -> list[Any]:
    x, b = put(some(9, 24)), put(some(24))
    return [activation.bias_activation(x, b, kind) for kind in activation.ACTIVATIONS]


def _bias_activation_gradient(put: Put) -> list[Any]:
    g, x, b = put(some(9, 24, seed=1)), put(some(9, 24)), put(some(24))
    kinds = activation.ACTIVATIONS
    return [a for k in kinds for a in activation.bias_activation_gradient(g, x, b, k)]


def _state(put: Put) -> Any:
    return put(np.array([12, 345]), "uint32")


def _dropout(put: Put) -> list[Any]:
    return [random.dropout(_state(put), put(some(n)), 0.4) for n in (1, 1001, 4096)]


def _add_rows(put: Put) -> list[Any]:
    return [KERNELS["add_rows"](put(some(500, 33)), _whole(put, 4, 500), size=6)]


def _sort(put: Put) -> list[Any]:
    x = some(2600, 3)
    return [KERNELS["add_rows"](put(x), _whole(put, 40, 2600, dtype="int64"), size=40)]


def _add_along(put: Put, dtype: str) -> list[Any]:
    places = np.random.default_rng(5).integers(-9, 9, (6, 500))
    return [KERNELS["add_along_axis"](put(some(6, 500)), put(places, dtype), shape=(6, 9), axis=1)]


def _heads_first(put: Put) -> list[Any]:
    return [
        y
        for size in (8, 3)  # by packs, and by numbers
        for y in heads.heads_first(
            [put(some(2, 5, 3, size)), put(some(2, 4, 3, size)), put(some(2, 4, 3, 16))], 0.3
        )
    ] + heads.heads_first([put(some(2, 5, 3, 8))])


def _steps_first(put: Put) -> list[Any]:
    return [
        y
        for size in (8, 3)
        for y in heads.steps_first(
            [put(some(2, 3, 5, size)), put(some(2, 3, 4, size)), put(some(2, 3, 4, 16))], 0.3
        )
    ] + heads.steps_first([put(some(2, 3, 5, 8))])


def _add_at(put: Put, dtype: str) -> list[Any]:
    places = np.random.default_rng(5).integers(-3, 3, (50, 2))
    return [KERNELS["add_at"](put(some(50, 4)), put(places, dtype), shape=(3, 5, 4))]


_POOL: dict[str, Any] = {"size": (3, 2), "strides": (2, 1), "padding": ((1, 1), (0, 1))}
_X, _Y = (2, 7, 6, 8), (2, 4, 6, 8)


def _pool(name: str, *shapes: tuple[int, ...], **more: Any) -> Callable[[Put], list[Any]]:
    def call(put: Put) -> list[Any]:
        given = [put(some(*s, seed=i)) for i, s in enumerate(shapes)]
        return [KERNELS[name](*given, **more, **_POOL)]

    return call


_WINDOWS: dict[str, Any] = {"strides": (2, 1), "padding": ((1, 1), (0, 1)), "dilation": (1, 1)}


def _convolution(name: str, groups: int, *shapes: tuple[int, ...], **more: Any) -> Any:
    def call(put: Put) -> list[Any]:
        given = [put(some(*s, seed=i)) for i, s in enumerate(shapes)]
        return [KERNELS[name](*given, groups=groups, **more, **_WINDOWS)]

    return call


_K, _K1 = (3, 2, 8, 8), (3, 2, 1, 16)
_Y2 = (2, 4, 6, 16)


def _recurrent(name: str, gates: int, *, bias: bool = False) -> Callable[[Put], list[Any]]:
    steps, n, units = 3, 5, 12

    def forward(put: Put) -> tuple[Any, list[Any]]:
        x, r = put(some(steps, n, gates * units)), put(some(units, gates * units, seed=1) / 4)
        more = [put(some(gates * units, seed=2))] if bias else []
        states = [put(some(n, units, seed=3 + k)) for k in range(2 if name == "lstm" else 1)]
        found = KERNELS[name](x, r, *more, *states)
        return [r, *states], list(found) if isinstance(found, tuple) else [found]

    def call(put: Put) -> list[Any]:
        given, made = forward(put)
        arriving = [put(some(steps, n, units, seed=9)) for _ in range(len(given) - 1)]
        return [*made, *KERNELS[f"{name}_gradient"](*arriving, *given, *made)]

    return call


def _lstm_by_steps(put: Put) -> list[Any]:
    x, r = put(some(3, 5, 48)), put(some(12, 48, seed=1) / 4)
    given = [put(some(5, 12, seed=2)), put(some(5, 12, seed=3))]
    mask = put(np.array([[1, 0, 1, 1, 1], [1, 1, 1, 0, 1], [0, 0, 1, 1, 1]]))
    return [*recurrent.lstm_by_steps(x, r, *given), *recurrent.lstm_by_steps(x, r, *given, mask)]


def _lists(put: Put, count: int) -> list[list[Any]]:
    shapes = [(3,), (9000,), (40, 50)]
    return [[put(abs(some(*s, seed=k))) for s in shapes] for k in range(count)]


def update_source(optimizer: Any, decay: bool = False) -> Any:
    """Return the CUDA code of an optimizer's formula.

    Args:
        optimizer: not built yet.
        decay: whether variables decay.
    """
    variable = Variable(np.zeros(3, "float32"))
    optimizer.build([variable])
    shared = optimizer.shared_updates(np.float32(2))
    formula = formula_of(optimizer)
    formula.refresh(tuple(shared))
    count = 2 + len(optimizer.slots_of(variable))
    numbers = [np.zeros((), "float32"), None, *shared.values()]
    source = update.compiled(formula, count, numbers, decay)
    assert source is not None
    return source


# Kernel -> the source that holds it: one for each optimizer whose formula is element-wise.
UPDATES: dict[str, Callable[[], Any]] = {
    "sgd_update": lambda: update_source(optimizers.SGD(0.1, 0.9), decay=True),
    "adam_update": lambda: update_source(optimizers.Adam(0.1)),
    "nadam_update": lambda: update_source(optimizers.Nadam(0.1)),
    "adamax_update": lambda: update_source(optimizers.Adamax(0.1)),
    "adagrad_update": lambda: update_source(optimizers.Adagrad(0.1)),
    "adadelta_update": lambda: update_source(optimizers.Adadelta(0.1)),
    "rmsprop_update": lambda: update_source(optimizers.RMSprop(0.1, momentum=0.5, centered=True)),
    "ftrl_update": lambda: update_source(optimizers.Ftrl(0.1, l1_regularization_strength=0.01)),
    "lion_update": lambda: update_source(optimizers.Lion(0.1)),
    "schedulefreeadamw_update": lambda: update_source(optimizers.ScheduleFreeAdamW(0.1)),
    "eve_update": lambda: update_source(optimizers.Eve(0.1)),
}


def _update(kernel: str) -> Callable[[Put], list[Any]]:
    def call(put: Put) -> list[Any]:
        source = UPDATES[kernel]()
        lists = _lists(put, len(source.program.elements))
        numbers = [
            put(np.array(3 if v.dtype == "int32" else 0.1), v.dtype) for v in source.program.numbers
        ]
        made = update.update_tensors(source, lists, numbers, [0.1, 0, 0.1])
        return [a for part in made for a in part]

    return call


def _global_norm(put: Put) -> list[Any]:
    return list(update.global_norm(_lists(put, 1)[0], 1.5))


def _class_hits(put: Put) -> list[Any]:
    return [fused_metrics.class_hits(_whole(put, n, 5), put(some(5, n))) for n in (3, 40, 1300)]


def _running_sums(put: Put) -> list[Any]:
    given = [put(np.array(v), "float32") for v in (2.0, 3.0)]
    return list(fused_metrics.running_sums(*given, put(some(700)), 0.5, 7.0))


CALLS: dict[str, Callable[[Put], list[Any]]] = {
    "class_hits": _class_hits,
    "running_sums": _running_sums,
    "softmax": _softmax,
    "softmax_gradient": _softmax_gradient,
    "class_loss": _class_loss,
    "class_loss_gradient": _class_loss_gradient,
    "target_loss": _target_loss,
    "target_loss_gradient": _target_loss_gradient,
    "normalize": _layer_norm,
    "normalize_gradient": _layer_norm_gradient,
    "column_parts": _layer_norm_gradient,
    "column_totals": _layer_norm_gradient,
    "moment_parts": _batch_norm,
    "moment_totals": _batch_norm,
    "batch_totals": _batch_norm_training,
    "column_factors": _batch_norm,
    "scale_shift": _batch_norm,
    "batch_gradient": _batch_norm_gradient,
    "bias_activation": _bias_activation,
    "bias_activation_gradient": _bias_activation_gradient,
    "random_words": lambda put: [KERNELS["random_bits"](_state(put), shape=(7, 33))],
    "dropout": _dropout,
    "gather_int": lambda put: [
        KERNELS["take_rows"](put(some(9, 24)), _whole(put, 9, 4, 5), axis=0)
    ],
    "gather_long": lambda put: [
        KERNELS["take_rows"](put(some(9, 7)), _whole(put, 9, 6, dtype="int64"), axis=0)
    ],
    "places_along_int": lambda put: _add_along(put, "int32"),
    "places_along_long": lambda put: _add_along(put, "int64"),
    "places_at_int": lambda put: _add_at(put, "int32"),
    "places_at_long": lambda put: _add_at(put, "int64"),
    "sort_chunks": _sort,
    "sort_chunks_int": _add_rows,
    "sort_merge": _sort,
    "scatter_chunks": _add_rows,
    "scatter_runs": _add_rows,
    "heads_first": _heads_first,
    "steps_first": _steps_first,
    "pool_largest": _pool("pool_max", _X),
    "pool_largest_gradient": _pool("pool_max_gradient", _Y, _X),
    "pool_pick": _pool("pool_max_select", _X, _X),
    "pool_mean": _pool("pool_average", _X),
    "pool_mean_gradient": _pool("pool_average_gradient", _Y, sizes=_X[1:-1]),
    "windows_to_rows": _convolution("convolution", 1, _X, _K),
    "rows_to_places": _convolution("convolution_data_gradient", 1, _Y, _K, size=_X[1:-1]),
    "depthwise": _convolution("convolution", 8, _X, _K1),
    "depthwise_data": _convolution("convolution_data_gradient", 8, _Y2, _K1, size=_X[1:-1]),
    "depthwise_kernel_parts": _convolution("convolution_kernel_gradient", 8, _X, _Y2, size=_K[:2]),
    "simple_step": _recurrent("simple_rnn", 1),
    "simple_step_gradient": _recurrent("simple_rnn", 1),
    "lstm_sequence": _recurrent("lstm", 4),
    "lstm_step": _lstm_by_steps,
    "lstm_step_gradient": _recurrent("lstm", 4),
    "gru_step": _recurrent("gru", 3, bias=True),
    "gru_step_gradient": _recurrent("gru", 3, bias=True),
    **{kernel: _update(kernel) for kernel in UPDATES},
    "square_parts": _global_norm,
    "norm_of_parts": _global_norm,
}
